// Package twin is the wire that Joulie's components know: NodeTwin and
// NodeHardware as documents, and the counts of the inputs that they come from.
// It puts what the engine reports into those shapes and reads a NodeTwin.spec
// strictly. It decides nothing and writes no hardware: a target goes to the rules
// as a series. Only here is a reading that warms up 0 W (decisions.md, X4).
package twin

// What documents say of themselves, as Joulie's CRDs do.
const (
	apiVersion   = "joulie.io/v1alpha1"
	kindTwin     = "NodeTwin"
	kindHardware = "NodeHardware"
)

// Metadata names the node that a document is of.
type Metadata struct {
	Name string `json:"name"`
}
