package listen

import (
	"cmp"
	"io/fs"
	"reflect"
	"slices"

	"github.com/wattloop/wattloop/ingest"
)

// Spec is a channel as somebody has defined it: by name in the configuration, or
// at run time. Its addresses are the same over all activations (S2-13).
type Spec struct {
	Name  string
	Class ingest.Class // empty means ingest.Workload
	// Listen is one address or two. Each takes both transports, gRPC and HTTP, and
	// tells them apart by the first bytes of a connection; with two, the first is
	// the one that gRPC clients are sent to, the second that of HTTP.
	Listen []Address
	Mode   fs.FileMode // of unix sockets; 0 means 0660
	Group  string      // of unix sockets and of a folder that is made for them; empty leaves the process's own
	Nodes  []string    // as ingest.ChannelOptions
	Gauge  ingest.Gauge
	Limits ingest.Limits
}

// leastConns is how many connections a channel has at least.
const leastConns = 8

// Check says what is wrong with a definition.
func (s *Spec) Check() error {
	o := s.options()
	if err := o.Check(); err != nil {
		return err
	}
	if len(s.Listen) == 0 || len(s.Listen) > 2 {
		return errNoAddress
	}
	sockets := false
	for _, a := range s.Listen {
		if err := a.reach(s.class()); err != nil {
			return ingest.InKey("listen", "listen: %w", err)
		}
		sockets = sockets || a.Network == "unix"
	}
	switch {
	case !sockets && (s.Mode != 0 || s.Group != ""):
		return ingest.InKey(s.socketKey(), "mode and group are those of a unix socket; %s is none", s.Listen[0])
	case s.Mode&^0o777 != 0 || s.Mode != 0 && s.Mode&0o200 == 0:
		return ingest.InKey("mode", "mode: %#o: want permissions like 0660; who may connect is who may write", s.Mode)
	case s.Limits.Conns != 0 && s.Limits.Conns < leastConns:
		return ingest.InKey("limits", "limits: conns: %d: at least %d: a program has one for each exporter, and the self-test of an activation needs one too", s.Limits.Conns, leastConns)
	case s.class() == ingest.Workload && len(s.Nodes) > 0:
		return ingest.InKey("nodes", "nodes: what a workload says of its node is deleted; the identity's node is set")
	}
	return nil
}

// socketKey is the key of s that only a unix socket has.
func (s *Spec) socketKey() string {
	if s.Mode != 0 {
		return "mode"
	}
	return "group"
}

// Here says what s needs and this machine does not have: the group of its socket.
func (s *Spec) Here() error {
	_, err := groupID(s.Group)
	return err
}

func (s *Spec) class() ingest.Class { return cmp.Or(s.Class, ingest.Workload) }
func (s *Spec) mode() fs.FileMode   { return cmp.Or(s.Mode, 0o660) }

// addresses are Listen without the second of two that are one.
func (s *Spec) addresses() []Address {
	return slices.CompactFunc(slices.Clone(s.Listen), func(a, b Address) bool { return a == b && !a.picks() })
}

func (s *Spec) options() ingest.ChannelOptions {
	return ingest.ChannelOptions{Name: s.Name, Class: s.class(), Nodes: s.Nodes, Gauge: s.Gauge, Limits: s.Limits}
}

// same reports whether two definitions say the same. What one leaves to the
// default and the other spells out is the same.
func (s *Spec) same(o *Spec) bool {
	a, b := *s, *o
	for _, x := range []*Spec{&a, &b} {
		x.Class, x.Mode, x.Gauge = x.class(), x.mode(), cmp.Or(x.Gauge, ingest.GaugeLast)
		x.Listen = x.addresses()
		x.Nodes = append([]string{}, x.Nodes...)
	}
	return reflect.DeepEqual(a, b)
}
