package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	remoteapi "github.com/prometheus/client_golang/exp/api/remote"

	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/internal/httpfile"
	"github.com/wattloop/wattloop/store/remote"
)

// urlValue is a URL; empty is none.
type urlValue struct{ p *string }

func (v urlValue) String() string { return *v.p }
func (v urlValue) Type() string   { return "url" }
func (v urlValue) Set(s string) error {
	if s != "" {
		if _, err := remote.ParseURL(s); err != nil {
			return err
		}
	}
	*v.p = s
	return nil
}

// messageValue is the message of Remote Write; empty is the one that the receiver
// knows.
type messageValue struct{ p *remoteapi.WriteMessageType }

func (v messageValue) Type() string {
	return "auto|io.prometheus.write.v2.Request|prometheus.WriteRequest"
}
func (v messageValue) String() string {
	if *v.p == "" {
		return "auto"
	}
	return string(*v.p)
}
func (v messageValue) Set(s string) error {
	m := remoteapi.WriteMessageType(s)
	if s == "auto" {
		m = ""
	} else if m.Validate() != nil {
		return fmt.Errorf("want auto, %s or %s", remoteapi.WriteV2MessageType, remoteapi.WriteV1MessageType)
	}
	*v.p = m
	return nil
}

// writeDir is where the queue of remote write lies.
func (c *config) writeDir() string { return filepath.Join(c.StatePath, "remote_write") }

// writeTarget is where committed samples go on to.
func (c *config) writeTarget() (remote.Target, error) {
	u, err := remote.ParseURL(c.Write)
	if err != nil {
		return remote.Target{}, fmt.Errorf("storage.remote_write: %w", err)
	}
	hc, err := httpfile.New(c.WriteHTTP, nil)
	if err != nil {
		return remote.Target{}, here(fmt.Errorf("storage.remote_write_http (%s): %w", c.origin["storage.remote_write_http"], err))
	}
	return remote.Target{URL: u, HTTP: hc, Message: c.WriteMessage}, nil
}

// checkWriter says what would keep openWriter from its target.
func (c *config) checkWriter() error {
	if c.Write == "" {
		return nil
	}
	_, err := c.writeTarget()
	return err
}

// openWriter has committed samples go on to where c says from now on, at the start
// and after a reload. What waits goes to the new place.
func (p *parts) openWriter(c *config) error {
	if c.Write == "" {
		return p.closeWriter()
	}
	to, err := c.writeTarget()
	if err != nil {
		return err
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	if p.write != nil {
		p.write.Retarget(to)
		return nil
	}
	p.write, err = remote.OpenWriter(remote.WriterOptions{
		Target: to, Dir: c.writeDir(), MaxBytes: int64(p.c.WriteQueue),
		Registerer: p.reg, Logger: p.log.With("part", "remote"), Clock: p.clk.Now,
	})
	if err != nil {
		return err
	}
	p.db.OnCommit(p.write.Take)
	return nil
}

// closeWriter sends what the receiver takes at once; the rest waits on disk for the
// next one.
func (p *parts) closeWriter() error {
	p.writing.Lock()
	defer p.writing.Unlock()
	if p.write == nil {
		return nil
	}
	p.db.OnCommit(nil)
	ctx, cancel := context.WithTimeout(context.Background(), relayDeadline)
	defer cancel()
	w := p.write
	p.write = nil
	return w.Close(ctx)
}

// writerFacts is how remote write stands; nil without it.
func (p *parts) writerFacts() *api.RemoteWrite {
	p.writing.Lock()
	defer p.writing.Unlock()
	if p.write == nil {
		return nil
	}
	s := p.write.Status()
	return &api.RemoteWrite{URL: s.URL, Message: s.Message, QueueBytes: s.QueueBytes, QueueLimit: s.QueueLimit, Sent: s.Sent, Dropped: s.Dropped,
		LostBytes: s.LostBytes, Answering: s.Answering, Error: s.Error, ErrorAt: known(s.ErrorAt)}
}

// writerLine is remote write as status shows it.
func writerLine(r *api.RemoteWrite) string {
	to := r.URL
	if r.Message != "" {
		to += " by " + r.Message
	}
	s := fmt.Sprintf("writes to %s: %d samples sent, %d dropped, %s of %s wait", to, r.Sent, r.Dropped, bytesText(r.QueueBytes), bytesText(r.QueueLimit))
	if r.ErrorAt != nil && (!r.Answering || r.Dropped > 0) {
		s += "; the last error at " + r.ErrorAt.Format(time.RFC3339) + ": " + r.Error
	}
	if r.LostBytes > 0 {
		s += "; " + bytesText(int64(r.LostBytes)) + " of the queue could not be read"
	}
	return s
}
