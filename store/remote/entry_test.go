package remote

import "testing"

// Whatever stands in a record, reading it ends, and what it gives can be made a
// request of.
func FuzzRecord(f *testing.F) {
	f.Add([]byte{1, 0, 1, 0, 1, 'a', 0, 1, 'b', 2, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{2, 1, 0, 3, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Add([]byte{3, 0, 1, 0, 1, 'a', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 1, 2, 3, 4, 2, 6, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1})
	f.Fuzz(func(t *testing.T, wire []byte) {
		var d decoder
		for range 2 {
			entries, err := d.record(1, wire, nil)
			if err == nil && int64(len(entries)) != entriesOf(wire) {
				t.Errorf("%d entries of %d, and no error", len(entries), entriesOf(wire))
			}
			_, _ = requestOf(&d, entries)
		}
	})
}
