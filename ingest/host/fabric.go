package host

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
)

const ibClass = "class/infiniband"

// fabric are the ports of InfiniBand and RDMA adapters, whose bytes and errors
// no network interface counts (Documentation/ABI/stable/sysfs-class-infiniband).
type fabric struct {
	files  attributes
	ledger *ledger

	ports  []string // mlx5_0/1
	counts map[string][]portCounter
	failed error
	errs   map[string]error
}

// portCounter is one file of a port.
type portCounter struct {
	file   *attribute
	metric string
	scale  float64
	attr   [2]string
}

// portFiles are the counters that are read. Data is counted in words of four
// bytes.
func portFiles() []struct {
	file, metric string
	scale        float64
	attr         [2]string
} {
	type row = struct {
		file, metric string
		scale        float64
		attr         [2]string
	}
	rows := []row{
		{"port_rcv_data", "hw.network.io", 4, [2]string{"network.io.direction", "receive"}},
		{"port_xmit_data", "hw.network.io", 4, [2]string{"network.io.direction", "transmit"}},
	}
	for _, kind := range []string{"symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors",
		"port_xmit_discards", "local_link_integrity_errors", "excessive_buffer_overrun_errors"} {
		rows = append(rows, row{kind, "hw.errors", 1, [2]string{"error.type", kind}})
	}
	return rows
}

func (f *fabric) find() error {
	adapters, err := f.files.fs.ReadDir(ibClass)
	f.ports, f.counts, f.failed = nil, map[string][]portCounter{}, nil
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	used := map[string]bool{}
	for _, adapter := range adapters {
		ports, perr := f.files.fs.ReadDir(path.Join(ibClass, adapter, "ports"))
		if errors.Is(perr, fs.ErrNotExist) || errors.Is(perr, syscall.ENOTDIR) {
			continue // no adapter
		}
		err = errors.Join(err, perr)
		for _, port := range ports {
			name := adapter + "/" + port
			dir := path.Join(ibClass, adapter, "ports", port, "counters")
			there, perr := f.files.fs.ReadDir(dir)
			if perr != nil {
				continue // a port without counters
			}
			f.ports = append(f.ports, name)
			for _, c := range portFiles() {
				if p := path.Join(dir, c.file); slices.Contains(there, c.file) {
					used[p] = true
					f.counts[name] = append(f.counts[name], portCounter{f.files.of(p), c.metric, c.scale, c.attr})
				}
			}
		}
	}
	f.files.keep(used)
	if f.failed = err; err != nil {
		return fmt.Errorf("host: %w", err)
	}
	return nil
}

func (f *fabric) poll(b *batch, _ Boot) ([]string, error) {
	f.errs = map[string]error{}
	var failed []error
	for _, port := range f.ports {
		for _, c := range f.counts[port] {
			text, err := c.file.text()
			if err == nil && strings.HasPrefix(text, "N/A") { // the adapter counts no such thing
				continue
			}
			var v float64
			if err == nil {
				v, err = c.file.parse(text)
			}
			if err != nil {
				f.errs[port] = err
				failed = append(failed, fmt.Errorf("host: %s: %w", port, err))
				continue
			}
			start := f.ledger.since("ib/"+port+"/"+path.Base(c.file.path), v, b.now)
			b.count(c.metric, start, v*c.scale, "hw.type", "network", "hw.id", port, c.attr[0], c.attr[1])
		}
	}
	return nil, errors.Join(failed...)
}

// findings says nothing of a machine without such an adapter: most have none.
func (f *fabric) findings() []Finding {
	var out []Finding
	for _, port := range f.ports {
		adapter, n, _ := strings.Cut(port, "/")
		out = append(out, found(KindInfiniBand, port, path.Join(ibClass, adapter, "ports", n), f.errs[port]))
	}
	if f.failed != nil {
		out = append(out, found(KindInfiniBand, "some adapters", ibClass, f.failed))
	}
	return out
}
