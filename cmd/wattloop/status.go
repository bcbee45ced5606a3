package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattloop/wattloop/api"
)

func statusCmd() *cobra.Command {
	var (
		cl     client
		output string
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the running engine on one screen: power, caps, controls, ingest",
		Example: `  wattloop status
  wattloop status -o json --url http://127.0.0.1:9464`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, raw, err := cl.status(cmd)
			if err != nil {
				return err
			}
			if output == "json" {
				_, err := cmd.OutOrStdout().Write(append(raw, '\n'))
				return withCode(exitCannot, err)
			}
			return withCode(exitCannot, printStatus(cmd.OutOrStdout(), s))
		},
	}
	cl.addFlags(cmd)
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

func (cl *client) status(cmd *cobra.Command) (*status, []byte, error) {
	var raw json.RawMessage
	if err := cl.getJSON(cmd.Context(), "/api/v1/status/wattloop", &raw); err != nil {
		return nil, nil, err
	}
	var s status
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, nil, withCode(exitCannot, fmt.Errorf("%s: not a status of this version: %w", cl.where(), err))
	}
	return &s, raw, nil
}

// status is api.Status as a client reads it.
type status = api.Status

func printStatus(w io.Writer, s *status) error {
	fmt.Fprintf(w, "wattloop %s on %s   warden pid %d, engine pid %d, up %s   durability %s, %d series\n",
		s.Version, s.Node, s.WardenPID, s.EnginePID, (time.Duration(s.UptimeSeconds) * time.Second).String(), s.Durability, s.Series)
	if s.RulesError != "" {
		fmt.Fprintln(w, "the last reload was refused, the old rules go on:", s.RulesError)
	}
	if s.TargetError != "" {
		fmt.Fprintln(w, "the target of this node is not taken:", s.TargetError)
	}
	if slices.ContainsFunc(s.Devices, func(d api.Device) bool { return d.Latched }) {
		fmt.Fprintln(w, "controls are held back since caps restore; wattloop caps resume lets them act again")
	}
	if len(s.Devices) > 0 && !slices.ContainsFunc(s.Devices, func(d api.Device) bool { return d.Enabled }) {
		fmt.Fprintln(w, "nothing is written to hardware: actuation.enabled is false in the warden's file")
	}
	if s.StoreError != "" {
		fmt.Fprintln(w, "the store takes no samples:", s.StoreError)
	}
	if s.SumsError != "" {
		fmt.Fprintln(w, "points of delta streams, and cumulative ones of workload channels, are refused for the moment:", s.SumsError)
	}
	if r := s.Remote; r != nil {
		fmt.Fprintln(w, remoteLine(r))
	}
	if r := s.RemoteWrite; r != nil {
		fmt.Fprintln(w, writerLine(r))
	}
	for _, l := range s.Integrity {
		fmt.Fprintf(w, "samples may be missing from %s to %s: %s\n", l.From.Format(time.RFC3339), l.To.Format(time.RFC3339), l.Why)
	}
	printCauses(w, s.Rules)
	for _, r := range s.Rules {
		if r.LeftOut != "" {
			fmt.Fprintf(w, "left out of %s: %s\n", r.Name, r.LeftOut)
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\nREADING\tKEY\tVALUE\tQUALITY\tAGE")
	for _, r := range s.Readings {
		if r.Cause != "" { // printCauses has named it
			continue
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", r.Name, keyText(r.Key), valueText(r.Value, r.Unit), qualityText(r, s.Unused[r.Name]), ageText(r.AgeSeconds, r.Value != nil))
	}
	fmt.Fprintln(tw, "\nCONTROL\tKEY\tMODE\tPHASE\tASKS\tRESULT\tWHY")
	for _, c := range s.Controls {
		if c.Cause != "" {
			continue
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Name, keyText(c.Key), c.Mode, c.Phase, valueText(c.Value, ""), orDash(c.Result), orDash(controlWhy(c, s.Unused[c.Name])))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := printDevices(w, s.Devices); err != nil {
		return err
	}
	fmt.Fprintln(w)
	printDoubts(w, s.Doubts)
	printMeters(w, s.Meters)
	if err := printChannels(w, s.Channels); err != nil {
		return err
	}
	now := s.Started.Add(time.Duration(s.UptimeSeconds * float64(time.Second)))
	if err := printTargets(w, s.Targets, now); err != nil {
		return err
	}
	if err := printPulls(w, s.Pulls, now); err != nil {
		return err
	}
	if s.Remote != nil {
		if err := printRelay(w, "REMOTE OTLP", s.Remote.OTLP); err != nil {
			return err
		}
	}
	return printRelay(w, "RELAY", s.Relay)
}

// controlWhy is why a control does what it does, or why it cannot tell. unused is
// why it has nothing to do.
func controlWhy(c api.Control, unused string) string {
	switch {
	case c.Error != "":
		return "error: " + c.Error
	case c.Value == nil && unused != "":
		return "unused: " + unused
	}
	return c.Why
}

func printDevices(w io.Writer, ds []api.Device) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "DEVICE\tID\tSTATE\tOWNER\tWANTED\tAPPLIED\tORIGINAL\tREASON")
	for _, d := range ds {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Name, d.ID, d.State, orDash(d.Owner),
			valueText(d.Desired, d.Unit), valueText(d.Applied, d.Unit), valueText(d.Original, d.Unit), orDash(deviceReason(d)))
	}
	return tw.Flush()
}

// deviceReason is the limit that cut the owner's value, and the reason beside it.
func deviceReason(d api.Device) string {
	switch {
	case d.ClampedTo == nil:
		return d.Reason
	case d.Reason == "" || d.Reason == "unchanged":
		return "clamped to " + valueText(d.ClampedTo, d.Unit)
	}
	return "clamped to " + valueText(d.ClampedTo, d.Unit) + ", " + d.Reason
}

func keyText(m map[string]string) string {
	var vs []string
	for k := range m {
		vs = append(vs, k)
	}
	sort.Strings(vs)
	for i, k := range vs {
		vs[i] = m[k]
	}
	if len(vs) == 0 {
		return "-"
	}
	return strings.Join(vs, ",")
}

func valueText(v *api.Number, unit string) string {
	if v == nil {
		return "-"
	}
	if unit == "1" { // UCUM's word for a plain number
		unit = ""
	}
	return strings.TrimSpace(strconv.FormatFloat(float64(*v), 'f', 1, 64) + " " + unit)
}

// qualityText is how far a reading can be trusted, and why there is none. unused is
// why none can be expected.
func qualityText(r api.Reading, unused string) string {
	if r.Value == nil && r.Error == "" && unused != "" {
		return "unused: " + unused
	}
	q := r.Quality
	if r.Partial {
		q += ", partial"
	}
	switch {
	case r.Error != "":
		q += ", error: " + r.Error
	case r.Value == nil && r.Why != "":
		q += ": " + r.Why
	}
	return q
}

func ageText(s float64, known bool) string {
	if !known {
		return "-"
	}
	return strconv.FormatFloat(s, 'f', 1, 64) + " s"
}
