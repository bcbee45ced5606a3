package main

import (
	"fmt"
)

// The goals of the figures that have one.
const (
	goalPrometheus      = 0.25
	goalVictoriaMetrics = 0.75
	goalAppend          = 2.0
	goalMemory          = 0.6
	// Where the goal of a ratio lies below what HTTP and the store cost by
	// themselves, the goal is that: the floor and this many times the append
	// limit.
	appendShare = 1.2
)

const mib = 1 << 20

func settled(l lap) float64 { return l.settled }

// ratios collects memory over the heats: by peer, in the order of measurement.
type ratios map[string][]spread

func (h *heat) print(worst ratios) {
	n := len(h.laps["wattloop"])
	note := fmt.Sprintf("%d series, %d points, %d a request, %d clients, n=%d", h.series, (h.ticks-1)*h.series, pointsPerBody, senders, n)
	show := func(name string, s spread, unit, more string) {
		figure(fmt.Sprintf("%s_%dk", name, h.series/1000), s.mid, unit, fmt.Sprintf("%s; %s%s", s, note, more))
	}
	us := "us"
	ours := h.each("wattloop", settled)
	floor, limit := spreadOf(h.each("sink", settled)), spreadOf(h.append)
	l := h.laps["wattloop"][0]
	show("ingest_cpu_us_per_point", spreadOf(ours), us, fmt.Sprintf(", both processes, %.3g at the ack, %.1f bytes a point on the wire",
		spreadOf(h.each("wattloop", func(l lap) float64 { return l.ack })).mid, l.bytesAPoint))
	if ruled := h.each(withRules, settled); len(ruled) > 0 {
		l := h.laps[withRules][0]
		show("ingest_cpu_with_rules_us_per_point", spreadOf(ruled), us, fmt.Sprintf(
			", the same with a fifth of the series read by the presets, sent as fast as they are taken; %.1f MiB loaded", float64(l.loaded.pss)/mib))
	}
	show("http_floor_us_per_point", floor, us, ", a bare net/http server that drops the body")
	show("append_limit_us_per_point", limit, us, ", in process, by reference, no fsync")
	show("ingest_in_process_us_per_point", spreadOf(h.export), us, ", bytes to committed, no HTTP, no fsync")
	show("ingest_vs_append_limit", over(h.export, h.append), "x", fmt.Sprintf("; goal %g", goalAppend))
	sum := floor.mid + appendShare*limit.mid
	for _, p := range []struct {
		name string
		goal float64
	}{{"prometheus", goalPrometheus}, {"victoriametrics", goalVictoriaMetrics}} {
		theirs := h.each(p.name, settled)
		if len(theirs) == 0 {
			continue
		}
		mid := spreadOf(theirs).mid
		goal := fmt.Sprintf("goal %g", p.goal)
		if p.goal*mid < sum {
			goal = fmt.Sprintf("goal %.3f, the floor and %g x the append limit (%.2f us), since %g lies below", sum/mid, appendShare, sum, p.goal)
		}
		show(p.name+"_cpu_us_per_point", spreadOf(theirs), us, fmt.Sprintf(", %.3g at the ack", spreadOf(h.each(p.name, func(l lap) float64 { return l.ack })).mid))
		show("ingest_cpu_vs_"+p.name, over(ours, theirs), "x", "; "+goal)
	}
	for _, name := range []string{"wattloop", "prometheus", "victoriametrics"} {
		h.memory(name, worst, show)
	}
	for _, name := range []string{"wattloop", "prometheus", "victoriametrics"} {
		if len(h.laps[name]) == 0 {
			continue
		}
		as := name + "_"
		if name == "wattloop" {
			as = ""
		}
		show(as+"disk_bytes_per_sample", spreadOf(h.each(name, func(l lap) float64 { return l.log })), "B", ", all files after the run")
		if name != "victoriametrics" {
			show(as+"block_bytes_per_sample", spreadOf(h.each(name, func(l lap) float64 { return l.blocks })), "B", ", the same as blocks, index included")
		}
	}
}

func (h *heat) memory(name string, worst ratios, show func(string, spread, string, string)) {
	for _, at := range []struct {
		when string
		of   func(lap) memory
	}{{"idle", func(l lap) memory { return l.idle }}, {"loaded", func(l lap) memory { return l.loaded }}} {
		pss := func(l lap) float64 { return float64(at.of(l).pss) / mib }
		rss := func(l lap) float64 { return float64(at.of(l).rss) / mib }
		anon := func(l lap) float64 { return float64(at.of(l).anon) / mib }
		theirs := h.each(name, pss)
		if len(theirs) == 0 {
			continue
		}
		show(name+"_memory_"+at.when, spreadOf(theirs), "MiB", fmt.Sprintf(
			", %.1f of it anonymous; pages that two processes share counted once, %.1f with them counted for each",
			spreadOf(h.each(name, anon)).mid, spreadOf(h.each(name, rss)).mid))
		if name != "wattloop" {
			worst[name] = append(worst[name], over(h.each("wattloop", pss), theirs))
		}
	}
}

// print gives the worst of idle and of each number of series.
func (r ratios) print() {
	for _, name := range []string{"prometheus", "victoriametrics"} {
		all := r[name]
		if len(all) == 0 {
			continue
		}
		top, list := all[0], ""
		for _, s := range all {
			if s.mid > top.mid {
				top = s
			}
			list += fmt.Sprintf(" %.2f", s.mid)
		}
		figure("rss_vs_"+name, top.mid, "x", fmt.Sprintf("%s; the worst of idle and loaded at each number of series:%s; goal %g", top, list, goalMemory))
	}
}
