package ingest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// S2-28, S2-32, S2-33, S2-37: a metric's resource and scope in pieces, before and
// behind its points, a key that is written twice and a value of two kinds, of which
// protobuf takes the last: the store and the upstream have what the channel says.
func TestStampedPiecesOfMetrics(t *testing.T) {
	keyTwice := appendField(stringAttribute("honest", "forged"), 1, []byte("k8s.node.name"))
	keyLast := slices.Concat(appendField(nil, 2, appendField(nil, 1, []byte("forged"))), appendField(nil, 1, []byte("ate.actor.uid")))
	valueTwice := appendField(stringAttribute("k8s.pod.name", "x"), 2, appendField(nil, 1, []byte("forged")))
	for i, kv := range [][]byte{keyTwice, keyLast, valueTwice} {
		point := slices.Concat(appendField(nil, 7, kv), fixed64(3, base*1e6), appendField(nil, 7, kv), fixed64(4, 0))
		metric := slices.Concat(appendField(nil, 12, kv), appendField(nil, 5, appendField(nil, 1, point)), appendField(nil, 1, []byte(fmt.Sprint("m", i))))
		scope := appendField(nil, 1, appendField(appendField(nil, 1, []byte("lib")), 3, kv))
		resource := appendField(nil, 1, appendField(nil, 1, kv))
		inner := slices.Concat(scope, appendField(nil, 2, metric), scope)
		b, a, up := workload(t, actor, nil)
		wire := appendField(nil, 1, slices.Concat(resource, appendField(nil, 2, inner), resource))
		res, err := a.Export(t.Context(), wire)
		if err != nil {
			t.Fatal(err)
		}
		checkResult(t, res, 1, 0, nil)
		for s := range b.stored() {
			if strings.Contains(s, "forged") || !strings.Contains(s, `k8s_node_name="edge-a"`) || !strings.Contains(s, `k8s_pod_name="worker-0"`) {
				t.Errorf("%d: the store has %s", i, s)
			}
		}
		if len(up.got) != 1 || bytes.Contains(up.got[0].Wire, []byte("forged")) {
			t.Errorf("%d: onward goes %q", i, up.got)
		}
	}
}
