package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/ingest/listen"
)

// The channels that the program has by itself.
const (
	defaultChannel = "default" // otlp.grpc.listen and otlp.http.listen
	hostChannel    = "host"    // this machine's own meters
	scrapeChannel  = "scrape"  // the pages of exporters
	pullChannel    = "pull"    // the documents of HTTP endpoints
)

// defineChannels takes over the channels of the configuration. It opens none.
func (p *parts) defineChannels() error {
	p.recv.Channel(hostChannel) // its name is taken, also while there are no meters
	p.doors = listen.NewManager(listen.Options{
		Receiver: p.recv, Clock: p.clk.Now, Log: p.log.With("part", "channels"),
		State: filepath.Join(p.c.channelsPath(), "live.json"),
	})
	for _, c := range p.c.Channels {
		if err := p.doors.Define(c.Spec); err != nil {
			return fmt.Errorf("channels: %w", err)
		}
	}
	return nil
}

// channelOps are the API's hands on the channels.
func (p *parts) channelOps() api.ChannelOps {
	return api.ChannelOps{
		List: p.channels,
		Activate: func(ctx context.Context, name string, r api.ChannelRequest) (api.Channel, bool, error) {
			def, err := specOf(name, r)
			if err != nil {
				return api.Channel{}, false, &api.CodedError{Code: http.StatusUnprocessableEntity, Err: err}
			}
			if err := p.builtIn(name, "choose another name"); err != nil {
				return api.Channel{}, false, err
			}
			a := listen.Activation{Identity: ingest.Identity(r.Identity)}
			for _, t := range []struct {
				from *time.Time
				to   *time.Time
			}{{r.At, &a.At}, {r.Since, &a.Since}} {
				if t.from != nil {
					*t.to = *t.from
				}
			}
			_, began, err := p.doors.Activate(ctx, name, def, a)
			if err != nil {
				return api.Channel{}, false, channelError(err)
			}
			p.opening.drop(name)
			return p.channel(name), began, nil
		},
		End: func(name string) (api.Channel, error) {
			if err := p.builtIn(name, "it is open while the program runs"); err != nil {
				return api.Channel{}, err
			}
			p.opening.drop(name)
			if _, err := p.doors.End(name); err != nil {
				return api.Channel{}, channelError(err)
			}
			return p.channel(name), nil
		},
		Prove: func(name string) (api.ChannelProof, error) {
			if err := p.builtIn(name, "it has no activation to test; wattloop channels list says what it takes"); err != nil {
				return api.ChannelProof{}, err
			}
			q, err := p.doors.Prove(name)
			if err != nil {
				return api.ChannelProof{}, channelError(err)
			}
			return api.ChannelProof{Path: q.Path, Answer: q.Answer, Addresses: p.channel(name).Addresses}, nil
		},
	}
}

// ownChannel is true for a channel of the program itself.
func ownChannel(name string) bool {
	return name == defaultChannel || name == hostChannel || name == scrapeChannel || name == pullChannel
}

// builtIn refuses to touch the program's own channels, with advice.
func (p *parts) builtIn(name, advice string) error {
	if !ownChannel(name) {
		return nil
	}
	return &api.CodedError{Code: http.StatusConflict, Err: fmt.Errorf("channel %s: is one of the program itself; %s", name, advice)}
}

// channelError gives an error its status.
func channelError(err error) error {
	for kind, code := range map[error]int{
		listen.ErrInvalid: http.StatusUnprocessableEntity, listen.ErrUnknown: http.StatusNotFound, listen.ErrConflict: http.StatusConflict,
	} {
		if errors.Is(err, kind) {
			return &api.CodedError{Code: code, Err: err}
		}
	}
	return err
}

// specOf is the definition in a request, nil when it has none.
func specOf(name string, r api.ChannelRequest) (*listen.Spec, error) {
	if r.Listen == nil && r.Class == "" && r.Mode == "" && r.Group == "" && r.Nodes == nil && r.Gauge == "" && r.Limits == nil {
		return nil, nil
	}
	s := &listen.Spec{Name: name, Class: ingest.Class(r.Class), Group: r.Group, Nodes: r.Nodes, Gauge: ingest.Gauge(r.Gauge)}
	if r.Listen == nil {
		return nil, fmt.Errorf("channel %s: what defines a channel needs its listen too", name)
	}
	for _, l := range []string{r.Listen.GRPC, r.Listen.HTTP} {
		if l == "" {
			continue
		}
		a, err := listen.ParseAddress(l)
		if err != nil {
			return nil, fmt.Errorf("listen: %w", err)
		}
		s.Listen = append(s.Listen, a)
	}
	if r.Mode != "" {
		m, err := parseMode(r.Mode)
		if err != nil {
			return nil, fmt.Errorf("mode: %w", err)
		}
		s.Mode = m
	}
	if l := r.Limits; l != nil {
		if l.Streams < 0 || l.Conns < 0 || l.Series < 0 {
			return nil, errors.New("limits: streams, conns and series: want numbers of 0 or more")
		}
		s.Limits = ingest.Limits(*l)
	}
	return s, nil
}

// channel is one of channels.
func (p *parts) channel(name string) api.Channel {
	for _, c := range p.channels() {
		if c.Name == name {
			return c
		}
	}
	return api.Channel{Name: name, Addresses: []string{}, LagSeconds: -1}
}

// channels are all that there are, by name.
func (p *parts) channels() []api.Channel {
	by := p.counts()
	at := func(name string) *api.Channel {
		if by[name] == nil {
			by[name] = &api.Channel{Name: name, LagSeconds: -1}
		}
		return by[name]
	}
	for name, live := range map[string]bool{defaultChannel: len(p.own) > 0, hostChannel: p.host != nil, scrapeChannel: len(p.scraper.Status()) > 0, pullChannel: len(p.puller.Status()) > 0} {
		c := at(name)
		c.Class, c.Live, c.Addresses = string(ingest.Node), live, []string{}
	}
	by[defaultChannel].Addresses = append([]string{}, p.own...)
	for _, s := range p.doors.States() {
		show(at(s.Name), s)
	}
	out := []api.Channel{}
	for _, name := range sortedKeys(by) {
		c := p.recv.Named(name)
		if c == nil {
			continue // forgotten since it was counted
		}
		if lag, ok := c.Lag(); ok {
			by[name].LagSeconds = lag.Seconds()
		}
		late := c.Lagging()
		by[name].Lagging, by[name].IntervalSeconds = late.Flagged, late.Interval.Seconds()
		w := c.Windows()
		by[name].Windows = api.Windows{Lost: w.Lost, Late: w.Late, Repeated: w.Repeated, Baseline: w.Baseline, BeforeActivation: w.BeforeActivation}
		out = append(out, *by[name])
	}
	return out
}

// show puts a state into its wire form.
func show(c *api.Channel, s listen.State) {
	c.Class, c.Live, c.Addresses = string(s.Class), s.Live, []string{}
	for _, a := range s.Listen {
		c.Addresses = append(c.Addresses, a.String())
	}
	if s.Err != nil {
		c.Error = strings.TrimPrefix(s.Err.Error(), "channel "+s.Name+": ")
	}
	if s.Live && s.Class == ingest.Workload {
		id := api.Identity(s.Who)
		at, since := s.Started.UTC(), s.Since.UTC()
		c.Identity, c.Started, c.Since = &id, &at, &since
	}
}

// counts reads what each channel took and refused from the program's own metrics.
func (p *parts) counts() map[string]*api.Channel {
	families, err := p.reg.Gather()
	if err != nil {
		p.log.Debug("own metrics", "err", err)
	}
	by := map[string]*api.Channel{}
	for _, f := range families {
		if f.GetName() != "wattloop_ingest_points_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			name := labels["channel"]
			if by[name] == nil {
				by[name] = &api.Channel{Name: name, LagSeconds: -1}
			}
			n := uint64(m.GetCounter().GetValue())
			switch labels["result"] {
			case "accepted":
				by[name].Accepted += n
			case "folded":
				by[name].Folded += n
			case "rejected":
				// What the store refused for the moment comes again: it is not lost.
				if labels["reason"] != "unavailable" {
					by[name].Rejected += n
				}
			}
		}
	}
	return by
}
