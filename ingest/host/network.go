package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

const netClass = "class/net"

// network are the interfaces that have hardware: lo, bridges, bonds, veth and
// the like would count the same bytes again.
type network struct {
	files  attributes
	ledger *ledger

	names  []string
	failed error
	errs   map[string]error
}

// netCounters are the files of an interface's statistics and what each is.
func netCounters() []struct{ file, metric, direction string } {
	return []struct{ file, metric, direction string }{
		{"rx_bytes", "system.network.io", "receive"}, {"tx_bytes", "system.network.io", "transmit"},
		{"rx_packets", "system.network.packet.count", "receive"}, {"tx_packets", "system.network.packet.count", "transmit"},
		{"rx_dropped", "system.network.packet.dropped", "receive"}, {"tx_dropped", "system.network.packet.dropped", "transmit"},
		{"rx_errors", "system.network.errors", "receive"}, {"tx_errors", "system.network.errors", "transmit"},
	}
}

func (n *network) find() error {
	names, err := n.files.fs.ReadDir(netClass)
	n.names, n.failed = nil, nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.failed = err
		return fmt.Errorf("host: %w", err)
	}
	used := map[string]bool{}
	for _, name := range names {
		if !n.physical(name) {
			continue
		}
		n.names = append(n.names, name)
		for _, c := range netCounters() {
			used[path.Join(netClass, name, "statistics", c.file)] = true
		}
	}
	n.files.keep(used)
	return nil
}

// physical tells hardware by the device that it hangs on, where the kernel has
// it as a link or, in copies of trees, as a folder.
func (n *network) physical(name string) bool {
	dir := path.Join(netClass, name)
	if target, err := n.files.fs.Readlink(dir); name == "lo" || err == nil && strings.Contains(target, "/virtual/") {
		return false
	}
	entries, err := n.files.fs.ReadDir(dir)
	return err == nil && slices.Contains(entries, "device") && slices.Contains(entries, "statistics")
}

func (n *network) poll(b *batch, _ Boot) ([]string, error) {
	n.errs = map[string]error{}
	var failed []error
	for _, name := range n.names {
		for _, c := range netCounters() {
			v, err := n.files.of(path.Join(netClass, name, "statistics", c.file)).number()
			if err != nil {
				n.errs[name] = err
				failed = append(failed, fmt.Errorf("host: %s: %w", name, err))
				break
			}
			start := n.ledger.since("net/"+name+"/"+c.file, v, b.now)
			b.count(c.metric, start, v, "network.interface.name", name, "network.io.direction", c.direction)
		}
	}
	return nil, errors.Join(failed...)
}

func (n *network) findings() []Finding {
	if n.failed != nil {
		return []Finding{found(KindNetwork, "", netClass, n.failed)}
	}
	if len(n.names) == 0 {
		return []Finding{absent(KindNetwork, netClass, "no interface with hardware of its own: lo, bridges, bonds and veth are left out",
			"in a container use the host's network namespace (hostNetwork)")}
	}
	var out []Finding
	for _, name := range n.names {
		out = append(out, found(KindNetwork, name, path.Join(netClass, name), n.errs[name]))
	}
	return out
}
