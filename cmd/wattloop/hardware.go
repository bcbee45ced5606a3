package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/wattloop/wattloop/actuate"
	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/ingest/host"
	"github.com/wattloop/wattloop/sysfs"
)

// devices finds what can be capped in the sysfs tree. A tree that cannot be
// read is exit code 3; one without a device is a machine that can only be
// watched.
func (c *config) devices() ([]actuate.Device, error) {
	if _, err := os.ReadDir(c.Sysfs); err != nil {
		return nil, withCode(exitCannot, fmt.Errorf("sysfs: %s: %w; name the tree with --sysfs", c.Sysfs, bare(err)))
	}
	devs, err := devices(sysfs.New(c.Sysfs))
	return devs, withCode(exitCannot, err)
}

// openMeters opens this machine's energy counters while there is still the
// privilege to; those that cannot be opened are said once and left out.
func openMeters(fs sysfs.FS, log *slog.Logger) ([]actuate.Meter, error) {
	found, err := host.Find(fs)
	if err != nil {
		return nil, err
	}
	var out []actuate.Meter
	for _, m := range found {
		f, err := fs.Open(m.Path)
		if err != nil {
			log.Warn("meter cannot be read", "meter", m.Name, "err", err)
			continue
		}
		meta, err := json.Marshal(m)
		if err != nil {
			panic("BUG: " + err.Error()) // plain fields alone
		}
		out = append(out, actuate.Meter{MeterInfo: actuate.MeterInfo{Name: m.Name, Meta: meta}, File: f})
	}
	return out, nil
}

func closeMeters(meters []actuate.Meter) {
	for _, m := range meters {
		m.File.Close() // only read from
	}
}

// hostSource reads the meters that the warden handed over.
func hostSource(c *config, clk clock, recv *ingest.Receiver, meters []actuate.Meter, log *slog.Logger) (*host.Source, error) {
	channel := recv.Channel(hostChannel)
	s := &host.Source{
		Node: c.Node, Interval: c.HostInterval, Clock: clk.Now, Log: log.With("part", "host"),
		Export: func(ctx context.Context, wire []byte) error {
			res, err := channel.Export(ctx, wire)
			if err == nil && res.Rejected > 0 {
				err = errors.New(res.Message)
			}
			return err
		},
	}
	for _, m := range meters {
		h := host.Meter{File: m.File}
		if err := json.Unmarshal(m.Meta, &h); err != nil {
			return nil, fmt.Errorf("host: meter %s: %w", m.Name, err)
		}
		s.Meters = append(s.Meters, h)
	}
	return s, nil
}
