package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/wattloop/wattloop/access"
	"github.com/wattloop/wattloop/rules"
)

// reread loads the configuration once more, from the flags that were given.
func reread(given *pflag.FlagSet, env func(string) (string, bool)) (*config, error) {
	c := defaultConfig()
	c.engineOnly = true
	fl := pflag.NewFlagSet("reload", pflag.ContinueOnError)
	c.addFlags(fl)
	var errs []error
	given.VisitAll(func(f *pflag.Flag) {
		if f.Changed && fl.Lookup(f.Name) != nil {
			for _, v := range items(f.Value) {
				errs = append(errs, fl.Set(f.Name, v))
			}
		}
	})
	return c, errors.Join(append(errs, c.load(fl, env))...)
}

// reload reads the configuration and every rule file again and takes all of
// them or none: after an error the old rules go on, and status says why. force
// ends caps that a protection control holds.
func (p *parts) reload(force bool) error {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	c, err := p.reread()
	var set *rules.Set
	var msgs []rules.Message
	var who access.Config
	if err == nil {
		who, err = p.accessAgain(c)
	}
	if err == nil {
		err = errors.Join(c.checkWriter(), c.checkFetched())
	}
	if err == nil {
		set, msgs, err = c.loadRulesUnder(p.c.Naming) // what is stored goes by that until a restart
	}
	if err == nil {
		warn(p.log, msgs)
		if err = p.eng.Reload(set, force); err == nil {
			err = errors.Join(p.letIn(c, who), p.openWriter(c))
		}
	} else {
		p.eng.ReloadRefused()
	}
	if err != nil {
		text := err.Error()
		p.rulesError.Store(&text)
		p.refused(err)
		return err
	}
	p.rulesError.Store(nil)
	p.twins.rewire(c, set)
	p.tellInputs(set, c.Attributes)
	p.doubts.readFrom(set)
	if err := p.twins.keeper.Watch(c.TwinSpec); err != nil {
		p.log.Error("target", "err", err)
	}
	p.scraper.Apply(c.Scrape)
	p.legacyOn.Store(c.LegacyJSON)
	p.puller.Apply(c.pulls())
	p.tellRestarts(c)
	p.log.Info("rules reloaded", "readings", len(set.Readings), "controls", len(set.Controls))
	return nil
}

// refused logs why a reload was not taken, one line a message.
func (p *parts) refused(err error) {
	var ce *configError
	var re *rulesError
	switch {
	case errors.As(err, &ce):
		tell(p.log.Error, ce.messages)
	case errors.As(err, &re):
		tell(p.log.Error, re.errors())
	default:
		p.log.Error("reload", "err", err)
	}
	p.log.Error("nothing was reloaded, the old rules go on")
}

// tellRestarts names the settings that have changed and wait for a restart.
func (p *parts) tellRestarts(c *config) {
	now := c.settings()
	for i, was := range p.c.settings() {
		if was.change == changeRestart && was.value.String() != now[i].value.String() {
			p.log.Warn("setting needs a restart", "key", was.key, "now", was.value.String(), "then", now[i].value.String())
		}
	}
}

// warn logs the warnings among the messages of a set that was loaded.
func warn(log *slog.Logger, msgs []rules.Message) { tell(log.Warn, msgs) }

// tell logs each message on a line of its own, without the picture of its place.
func tell(log func(string, ...any), msgs []rules.Message) {
	for _, m := range msgs {
		at := m.File
		if m.Line > 0 {
			at = fmt.Sprintf("%s:%d:%d", m.File, m.Line, m.Col)
		}
		log("file", "at", at, "message", m.Text, "suggestion", m.Suggestion, "rule", m.Rule)
	}
}
