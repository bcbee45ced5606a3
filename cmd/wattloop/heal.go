package main

import (
	"context"
	"time"

	"github.com/wattloop/wattloop/api"
)

// heal brings a store back that has frozen after a failed write: it is closed
// and opened again, and only then acks resume. What was refused meanwhile is
// stated as a time range; nothing that was acked is lost.
func (p *parts) heal(ctx context.Context) error {
	const look = time.Second
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(look):
		}
		st := p.db.Stats()
		if st.Frozen == nil {
			p.healFailed = ""
			continue
		}
		p.log.Error("the store takes no samples", "err", st.Frozen)
		if err := p.db.Reopen(ctx); err != nil {
			if err.Error() != p.healFailed && ctx.Err() == nil {
				p.healFailed = err.Error()
				p.log.Error("the store was not reopened yet", "err", err)
			}
			continue
		}
		p.log.Info("the store was reopened and takes samples again")
		p.lost(api.Loss{From: st.FrozenAt, To: p.clk.Now(), Why: "points were refused: " + st.Frozen.Error()})
	}
}

// mostLosses bounds what the status page lists; the newest stay.
const mostLosses = 100

func (p *parts) lost(l api.Loss) {
	p.lossMu.Lock()
	defer p.lossMu.Unlock()
	p.losses = append(p.losses, l)
	if n := len(p.losses) - mostLosses; n > 0 {
		p.losses = p.losses[n:]
	}
}

// channels reads what each channel took and refused from the program's own
// metrics.
func (p *parts) channels() []api.Channel {
	families, err := p.reg.Gather()
	if err != nil {
		p.log.Debug("own metrics", "err", err)
	}
	by := map[string]*api.Channel{}
	at := func(name string) *api.Channel {
		if by[name] == nil {
			by[name] = &api.Channel{Name: name, LagSeconds: -1}
		}
		return by[name]
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == "wattloop_ingest_points_total" {
				n := uint64(m.GetCounter().GetValue())
				ch := at(labels["channel"])
				switch labels["result"] {
				case "accepted":
					ch.Accepted += n
				case "folded":
					ch.Folded += n
				case "rejected":
					ch.Rejected += n
				}
			}
		}
	}
	out := []api.Channel{}
	for _, name := range sortedKeys(by) {
		if lag, ok := p.recv.Channel(name).Lag(); ok {
			by[name].LagSeconds = lag.Seconds()
		}
		out = append(out, *by[name])
	}
	return out
}
