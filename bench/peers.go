package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// peer is a server that is built from its module as it was released.
type peer struct {
	bin, pkg, version string
	tags              string
	contender         func(bin string) contender
}

var allPeers = []peer{
	{"prometheus", "github.com/prometheus/prometheus/cmd/prometheus", "v0.316.0", "remove_all_sd", prometheusPeer},
	{"victoria-metrics", "github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics", "v1.151.0", "", victoriaMetrics},
}

// build makes the peer's binary in bin, unless it is there already.
func (p peer) build(r run) (string, error) {
	dir, err := filepath.Abs("bin")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, p.bin)
	if info, err := buildinfo.ReadFile(path); err == nil && info.Path == p.pkg && info.Main.Version == p.version {
		return path, nil
	}
	fmt.Fprintf(os.Stderr, "bench: building %s@%s, once; it takes minutes\n", p.pkg, p.version)
	cmd := exec.CommandContext(r.ctx, "go", "install", "-tags", p.tags, p.pkg+"@"+p.version)
	cmd.Dir = os.TempDir() // outside every module
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-mod=mod")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build %s@%s: %w", p.pkg, p.version, err)
	}
	return path, nil
}

// heat is all that was measured with one number of series, a value a round.
type heat struct {
	series, ticks  int
	laps           map[string][]lap
	append, export []float64
}

// against measures wattloop beside the peers, the bare sink and the append
// limit, each in turn, round after round, on the same requests.
func against(r run) error {
	rounds, sizes := r.rounds, [][2]int{{10_000, 130}, {100_000, 60}}
	racers := []contender{wattloop(r.bin), bareSink()}
	if r.short {
		rounds, sizes = 1, [][2]int{{10_000, 20}}
	}
	if !r.alone {
		for _, p := range allPeers {
			bin, err := p.build(r)
			if err != nil {
				return err
			}
			racers = append(racers, p.contender(bin))
		}
	}
	for _, c := range racers {
		fmt.Printf("# limits in force, %s: %s\n", c.name, c.limits)
	}
	worst := ratios{}
	for _, size := range sizes {
		if r.series != 0 && r.series != size[0] {
			continue
		}
		h := heat{series: size[0], ticks: size[1], laps: map[string][]lap{}}
		for range rounds {
			for _, c := range racers {
				l, err := r.race(c, unread, h.series, h.ticks)
				if err != nil {
					return fmt.Errorf("%s, %d series: %w", c.name, h.series, err)
				}
				h.laps[c.name] = append(h.laps[c.name], l)
			}
			if r.alone {
				l, err := r.race(racers[0], read, h.series, h.ticks)
				if err != nil {
					return fmt.Errorf("with rules, %d series: %w", h.series, err)
				}
				h.laps[withRules] = append(h.laps[withRules], l)
			}
			for work, to := range map[string]*[]float64{"append": &h.append, "export": &h.export} {
				us, err := r.inProcess(work, h.series, h.ticks)
				if err != nil {
					return err
				}
				*to = append(*to, us)
			}
		}
		h.print(worst)
	}
	worst.print()
	return nil
}

// spread is the median of some values, and the least and the greatest.
type spread struct{ mid, low, high float64 }

func spreadOf(vs []float64) spread {
	vs = slices.Sorted(slices.Values(vs))
	n := len(vs)
	return spread{(vs[(n-1)/2] + vs[n/2]) / 2, vs[0], vs[n-1]}
}

func (s spread) String() string {
	return fmt.Sprintf("median, all lie from %.3g to %.3g", s.low, s.high)
}

// each takes one value of every lap of a contender.
func (h *heat) each(name string, f func(lap) float64) []float64 {
	var out []float64
	for _, l := range h.laps[name] {
		out = append(out, f(l))
	}
	return out
}

// over divides round by round: what disturbs a round disturbs both.
func over(a, b []float64) spread {
	var out []float64
	for i := range a {
		out = append(out, a[i]/b[i])
	}
	return spreadOf(out)
}

// withRules is the name of wattloop's laps on series that the presets read.
const withRules = "with rules"
