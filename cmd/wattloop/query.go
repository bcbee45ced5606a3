package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

func queryCmd() *cobra.Command {
	var (
		cl         client
		output     string
		span, step time.Duration
		at         string
	)
	cmd := &cobra.Command{
		Use:   "query EXPR",
		Short: "Run PromQL on the running engine",
		Example: `  wattloop query 'hw_power_watts'
  wattloop query 'covered_rate(hw_energy_joules_total[1m])' --range 10m --step 30s -o json`,
		Args: wantArgs(1, 1, "one EXPR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, form, err := queryForm(args[0], at, span, step)
			if err != nil {
				return err
			}
			b, code, err := cl.do(cmd.Context(), http.MethodPost, path, form)
			if err != nil {
				return err
			}
			return printQuery(cmd.OutOrStdout(), cmd.ErrOrStderr(), b, code, output)
		},
	}
	cl.addFlags(cmd)
	outputFlag(cmd, &output, "table", "json")
	cmd.Flags().DurationVar(&span, "range", 0, "look back this far instead of at one instant")
	cmd.Flags().DurationVar(&step, "step", 30*time.Second, "distance of the points of --range")
	cmd.Flags().StringVar(&at, "at", "", "instant, Unix seconds or RFC 3339 (default now)")
	return cmd
}

// queryForm is the request for an expression: at one instant, or over span.
func queryForm(expr, at string, span, step time.Duration) (path string, form url.Values, err error) {
	form = url.Values{"query": {expr}}
	end := time.Now()
	if at != "" {
		if end, err = parseInstant(at); err != nil {
			return "", nil, err
		}
		form.Set("time", unixSeconds(end))
	}
	switch {
	case span == 0:
		return "/api/v1/query", form, nil
	case span < 0 || step < time.Millisecond:
		return "", nil, fmt.Errorf("--range %s --step %s: want more than 0", span, step)
	}
	form.Del("time")
	form.Set("start", unixSeconds(end.Add(-span)))
	form.Set("end", unixSeconds(end))
	form.Set("step", strconv.FormatFloat(step.Seconds(), 'f', -1, 64))
	return "/api/v1/query_range", form, nil
}

func parseInstant(s string) (time.Time, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil && math.Abs(f) < 1e12 {
		return time.UnixMilli(int64(math.Round(f * 1000))), nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, fmt.Errorf("--at %q: want Unix seconds or RFC 3339, like 2026-07-01T12:00:00Z", s)
	}
	return t, nil
}

func unixSeconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}

// promResponse is what the table needs of Prometheus's answer.
type promResponse struct {
	Status, ErrorType, Error string
	Warnings                 []string
	Infos                    []string
	Data                     struct {
		ResultType string
		Result     json.RawMessage
	}
}

// promPoint is a time in Unix seconds and a value.
type promPoint [2]any

type promHistogram struct{ Count, Sum string }

type promSeries struct {
	Metric     map[string]string
	Value      *promPoint
	Values     []promPoint
	Histogram  []json.RawMessage
	Histograms [][]json.RawMessage
}

func printQuery(out, errs io.Writer, b []byte, code int, output string) error {
	var r promResponse
	if err := json.Unmarshal(b, &r); err != nil {
		return withCode(exitCannot, fmt.Errorf("query: %d: %s", code, strings.TrimSpace(string(b))))
	}
	for _, w := range append(r.Warnings, r.Infos...) {
		fmt.Fprintln(errs, "note:", w)
	}
	switch {
	case r.Status == "success":
	case r.ErrorType == "bad_data" || r.ErrorType == "execution":
		return withCode(exitFound, fmt.Errorf("query: %s", r.Error))
	default:
		return withCode(exitCannot, fmt.Errorf("query: %s: %s", r.ErrorType, r.Error))
	}
	if output == "json" {
		_, err := out.Write(b)
		return withCode(exitCannot, err)
	}
	return withCode(exitCannot, printResult(out, r))
}

func printResult(out io.Writer, r promResponse) error {
	if r.Data.ResultType == "scalar" || r.Data.ResultType == "string" {
		var v promPoint
		if err := json.Unmarshal(r.Data.Result, &v); err != nil {
			return err
		}
		_, err := fmt.Fprintln(out, v[1])
		return err
	}
	var series []promSeries
	if err := json.Unmarshal(r.Data.Result, &series); err != nil {
		return err
	}
	if len(series) == 0 {
		_, err := fmt.Fprintln(out, "no series")
		return err
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "SERIES\tTIME\tVALUE")
	for _, s := range series {
		points, err := s.points()
		if err != nil {
			return err
		}
		for _, p := range points {
			at, _ := p[0].(float64)
			fmt.Fprintf(tw, "%s\t%s\t%v\n", seriesName(s.Metric), time.UnixMilli(int64(math.Round(at*1000))).UTC().Format("2006-01-02T15:04:05.000Z"), p[1])
		}
	}
	return tw.Flush()
}

// points are the series' values, of a native histogram its count and sum.
func (s promSeries) points() ([]promPoint, error) {
	out := s.Values
	if s.Value != nil {
		out = append(out, *s.Value)
	}
	hs := s.Histograms
	if s.Histogram != nil {
		hs = append(hs, s.Histogram)
	}
	for _, h := range hs {
		var at float64
		var v promHistogram
		if len(h) != 2 || json.Unmarshal(h[0], &at) != nil || json.Unmarshal(h[1], &v) != nil {
			return nil, errors.New("query: a histogram of another shape than Prometheus's")
		}
		out = append(out, promPoint{at, fmt.Sprintf("histogram, count %s, sum %s", v.Count, v.Sum)})
	}
	return out, nil
}

// seriesName prints a label set as PromQL writes it.
func seriesName(m map[string]string) string {
	var parts []string
	for k, v := range m {
		if k != "__name__" {
			parts = append(parts, fmt.Sprintf("%s=%q", k, v))
		}
	}
	sort.Strings(parts)
	if len(parts) == 0 && m["__name__"] != "" {
		return m["__name__"]
	}
	return m["__name__"] + "{" + strings.Join(parts, ", ") + "}"
}
