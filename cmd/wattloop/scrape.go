package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/ingest/scrape"
)

// newScraper makes the reader of exporters' pages. It reads none before Run.
func (p *parts) newScraper(log *slog.Logger) *scrape.Manager {
	channel := p.recv.Channel(scrapeChannel)
	m := scrape.NewManager(scrape.Options{
		Store: p.db, Sync: p.db.Sync,
		Watch:      ingest.Watch{Gen: p.eng.Generation, Rules: p.eng.Touched, Grew: p.eng.Grew},
		Took:       channel.Took,
		OutOfOrder: p.c.OutOfOrder, Clock: p.clk.Now, Agent: "wattloop/" + version,
		Log: log.With("part", "scrape"), Registerer: p.reg,
	})
	m.Apply(p.c.Scrape)
	return m
}

// targets are what the report says of the exporters.
func (p *parts) targets() []api.Target {
	out := []api.Target{}
	for _, st := range p.scraper.Status() {
		t := api.Target{
			URL: st.URL, Job: st.Job, Instance: st.Instance, Health: "unknown", IntervalSeconds: st.Interval.Seconds(),
			Samples: st.Samples, Stored: st.Stored, NotStored: st.NotStored, Error: st.Err,
		}
		if !st.LastScrape.IsZero() {
			at := st.LastScrape.UTC()
			t.LastScrape, t.ScrapeSeconds, t.Health = &at, st.Took.Seconds(), "down"
		}
		if st.Up {
			t.Health = "up"
		}
		out = append(out, t)
	}
	return out
}

// checkScrape reads a page once and says what of it would be stored.
func checkScrape(ctx context.Context, w io.Writer, address, output string) error {
	address, err := scrape.ParseURL(address)
	if err != nil {
		return withCode(exitUsage, fmt.Errorf("--page: %w", err))
	}
	got := scrape.Probe(ctx, scrape.Target{URL: address}, "wattloop/"+version, time.Now())
	if output == "json" {
		if err := writeIndented(w, got); err != nil {
			return withCode(exitCannot, err)
		}
	} else if got.Err == "" {
		fmt.Fprintf(w, "%s: %s, %d would be stored\n", address, plural(got.Samples, "sample"), got.Stored)
		for _, n := range got.Not {
			fmt.Fprintf(w, "  %s not, %s: %s; for one\n    %s\n", plural(n.Samples, "sample"), n.Reason, n.Why, n.Example)
		}
	}
	switch {
	case got.Err == "":
		return nil
	case output == "json":
		return withCode(exitFound, errSaid)
	}
	return withCode(exitFound, fmt.Errorf("%s: %s", address, got.Err))
}

// printTargets is a table of them as of now, or nothing.
func printTargets(w io.Writer, ts []api.Target, now time.Time) error {
	if len(ts) == 0 {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\nTARGET\tJOB\tINSTANCE\tSTATE\tSCRAPED\tSAMPLES\tNOT STORED\tERROR")
	for _, t := range ts {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", t.URL, t.Job, t.Instance, t.Health, agoText(t.LastScrape, now), t.Samples, t.NotStored, orDash(t.Error))
	}
	return tw.Flush()
}

// agoText is how long ago a time is, or a dash.
func agoText(at *time.Time, now time.Time) string {
	if at == nil {
		return "-"
	}
	return strconv.FormatFloat(max(0, now.Sub(*at).Seconds()), 'f', 1, 64) + " s ago"
}
