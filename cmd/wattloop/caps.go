package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattloop/wattloop/actuate/warden"
)

func capsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "caps",
		Short: "List caps, give everything back, let controls act again",
		Example: `  wattloop caps list
  wattloop caps restore`,
	}
	cmd.AddCommand(capsListCmd(), capsRestoreCmd(), capsResumeCmd())
	return cmd
}

func capsListCmd() *cobra.Command {
	var (
		cl     client
		output string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "What every device holds, who asked for it, and what was there before",
		Example: `  wattloop caps list
  wattloop caps list -o json --url http://127.0.0.1:9464`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, _, err := cl.status(cmd)
			if err != nil {
				return err
			}
			if output == "json" {
				return withCode(exitCannot, writeIndented(cmd.OutOrStdout(), s.Devices))
			}
			return withCode(exitCannot, printDevices(cmd.OutOrStdout(), s.Devices))
		},
	}
	cl.addFlags(cmd)
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

// offlineKeys are the settings of the verbs that act without an engine.
var offlineKeys = []string{"state.path", "run.path", "sysfs", "engine.user"}

// offline are the warden's options of a verb that acts without an engine.
func (c *config) offline() (warden.Options, error) {
	devs, err := c.devices()
	if err != nil {
		return warden.Options{}, err
	}
	return warden.Options{Devices: devs, Tree: c.Sysfs, StatePath: c.StatePath, RunPath: c.RunPath, Log: newLogger("error", os.Stderr)}, nil
}

func capsRestoreCmd() *cobra.Command {
	var (
		noLatch  bool
		deadline time.Duration
		output   string
	)
	c := defaultConfig()
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Give every device its original back, whatever has died",
		Long: `restore gives every device the value that was there before wattloop wrote to it. With a running
warden it asks it; without one it reads the journal under --state.path and does it itself. Then
every control is held back to observe until wattloop caps resume, unless --no-latch.

A configuration file with errors does not stop it: what can be read of it holds.`,
		Example: `  wattloop caps restore
  wattloop caps restore --no-latch --deadline 5s     as a systemd unit's ExecStopPost`,
	}
	c.addFlags(cmd.Flags(), offlineKeys...)
	cmd.Flags().BoolVar(&noLatch, "no-latch", false, "do not hold the controls back; caps kept by on_stop: hold stay")
	cmd.Flags().DurationVar(&deadline, "deadline", 5*time.Second, "give up after this long")
	outputFlag(cmd, &output, "table", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if deadline <= 0 {
			return fmt.Errorf("--deadline %s: want more than 0", deadline)
		}
		if err := c.load(cmd.Flags(), os.LookupEnv); err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%v\nwattloop: going on with what could be read of the configuration: state.path %s, run.path %s\n", err, c.StatePath, c.RunPath)
		}
		o, err := c.offline()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), deadline)
		defer cancel()
		rep, err := warden.RestoreAll(ctx, o, noLatch)
		err = ownPaths(err)
		if perr := printRestored(cmd.OutOrStdout(), rep, output); perr != nil && err == nil {
			err = perr
		}
		if len(rep.Devices) == 0 && err == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "no device that can be capped in %s\n", c.Sysfs)
		}
		if rep.Latched {
			fmt.Fprintln(cmd.ErrOrStderr(), "every control is held back to observe until wattloop caps resume")
		}
		return withCode(exitCannot, err)
	}
	return cmd
}

// ownPaths says what to do about a warden that lives on other paths.
func ownPaths(err error) error {
	var tree *warden.TreeLockedError
	if errors.As(err, &tree) {
		return fmt.Errorf("%w, and it does not answer under this --run.path: give the --run.path and --state.path that it was started with", err)
	}
	return err
}

func printRestored(w io.Writer, rep warden.Report, output string) error {
	if output == "json" {
		if rep.Devices == nil {
			rep.Devices = []warden.Restored{}
		}
		return writeIndented(w, rep)
	}
	if len(rep.Devices) == 0 {
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "DEVICE\tID\tHOLDS\tRESULT\tREASON\tMESSAGE")
	for _, d := range rep.Devices {
		holds := fmt.Sprintf("%g %s", d.Value, d.Unit)
		if d.Unknown {
			holds = "unknown"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", d.Name, d.Device, holds, d.Result, orDash(d.Reason), orDash(d.Message))
	}
	return tw.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func capsResumeCmd() *cobra.Command {
	c := defaultConfig()
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Let controls act again after caps restore",
		Example: `  wattloop caps resume
  wattloop caps resume --state.path ./state --run.path ./run`,
	}
	c.addFlags(cmd.Flags(), offlineKeys...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.load(cmd.Flags(), os.LookupEnv); err != nil {
			return withCode(exitFound, err)
		}
		o, err := c.offline()
		if err != nil {
			return err
		}
		was, err := warden.Resume(cmd.Context(), o)
		if err != nil {
			return withCode(exitCannot, ownPaths(err))
		}
		said := "controls may act again"
		if !was {
			said = fmt.Sprintf("nothing was held back under --state.path %s: nothing to resume", c.StatePath)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
		return withCode(exitCannot, err)
	}
	return cmd
}
