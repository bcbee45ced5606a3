package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattloop/wattloop/api"
	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/ingest/listen"
	"github.com/wattloop/wattloop/internal/nearest"
)

func channelsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "channels",
		Short: "The ways in for OTLP: list, environment, activate, end",
		Example: `  wattloop channels list
  wattloop channels env worker-1`,
	}
	cmd.AddCommand(channelsListCmd(), channelsEnvCmd(), channelsActivateCmd(), channelsEndCmd(), channelsTestCmd())
	return cmd
}

func channelsListCmd() *cobra.Command {
	var (
		cl     client
		output string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Every channel, where it listens, for whom, and what it took",
		Example: `  wattloop channels list
  wattloop channels list -o json --url http://127.0.0.1:9464`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all api.Channels
			if err := cl.getJSON(cmd.Context(), "/api/v1/channels", &all); err != nil {
				return err
			}
			if output == "json" {
				return withCode(exitCannot, writeIndented(cmd.OutOrStdout(), all))
			}
			return withCode(exitCannot, printChannels(cmd.OutOrStdout(), all.Channels))
		},
	}
	cl.addFlags(cmd)
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

func printChannels(w io.Writer, cs []api.Channel) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "CHANNEL\tCLASS\tSTATE\tLISTEN\tACTOR\tSTARTED\tACCEPTED\tFOLDED\tREJECTED\tLAG s\tERROR")
	for _, c := range cs {
		lag, state, actor, started := "-", "closed", "-", "-"
		if c.LagSeconds >= 0 {
			lag = strconv.FormatFloat(c.LagSeconds, 'f', 3, 64)
		}
		if c.Lagging { // S0-163
			lag += fmt.Sprintf(" (late for an interval of %g s)", c.IntervalSeconds)
		}
		switch {
		case c.Live:
			state = "open"
		case ownChannel(c.Name): // of a source that is not set up
			state = "unused"
		}
		if c.Identity != nil {
			actor = orDash(c.Identity.ActorUID)
		}
		if c.Started != nil {
			started = c.Started.Format(time.RFC3339)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\n", c.Name, c.Class, state, orDash(strings.Join(c.Addresses, ",")),
			actor, started, c.Accepted, c.Folded, c.Rejected, lag, orDash(c.Error))
	}
	return tw.Flush()
}

// oneChannel asks for a channel by name.
func (cl *client) oneChannel(ctx context.Context, name string) (api.Channel, error) {
	var all api.Channels
	if err := cl.getJSON(ctx, "/api/v1/channels", &all); err != nil {
		return api.Channel{}, err
	}
	var names []string
	for _, c := range all.Channels {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	hint := "; there are " + strings.Join(names, ", ")
	if near := nearest.Of(name, names); near != "" {
		hint = fmt.Sprintf(" (did you mean %q?)", near)
	}
	return api.Channel{}, withCode(exitFound, fmt.Errorf("channels: no channel %s%s", name, hint))
}

func channelsActivateCmd() *cobra.Command {
	var (
		cl                       client
		id                       ingest.Identity
		file, output, at, since  string
		class, mode, group, grpc string
		http1                    string
	)
	cmd := &cobra.Command{
		Use:   "activate NAME",
		Short: "Set the identity of a channel and open it",
		Long: `activate sets who a workload channel speaks for, opens its address, and tests that connections
get there. The same again changes nothing; another identity is refused until channels end.
With --listen it makes a channel that the configuration does not have.`,
		Example: `  wattloop channels activate worker-1 --actor-uid 7f2c --template-name web --node worker-01
  jq .identity activation.json | wattloop channels activate worker-1 --identity -`,
		Args:              wantArgs(1, 1, "one NAME"),
		ValidArgsFunction: completeChannels(&cl),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := api.ChannelRequest{Class: class, Mode: mode, Group: group}
			if file != "" {
				if err := readIdentity(file, cmd.InOrStdin(), &req.Identity); err != nil {
					return withCode(exitFound, fmt.Errorf("%s--identity: %w", place(cmd), err))
				}
			}
			for i, f := range identityFields((*ingest.Identity)(&req.Identity)) {
				if cmd.Flags().Changed(identityFlag(f.name)) {
					*f.p = *identityFields(&id)[i].p
				}
			}
			if grpc != "" || http1 != "" {
				req.Listen = &api.ChannelListen{GRPC: grpc, HTTP: http1}
			}
			for _, t := range []struct {
				flag, text string
				to         **time.Time
			}{{"at", at, &req.At}, {"since", since, &req.Since}} {
				if t.text == "" {
					continue
				}
				v, err := time.Parse(time.RFC3339Nano, t.text)
				if err != nil {
					return fmt.Errorf("%s--%s %q: want a time like 2026-01-02T15:04:05Z", place(cmd), t.flag, t.text)
				}
				*t.to = &v
			}
			return cl.changeChannel(cmd, http.MethodPut, args[0], req, output)
		},
	}
	cl.addFlags(cmd)
	outputFlag(cmd, &output, "table", "json")
	fl := cmd.Flags()
	for _, f := range identityFields(&id) {
		fl.StringVar(f.p, identityFlag(f.name), "", f.help)
	}
	fl.StringVar(&file, "identity", "", "file with the identity as JSON, - for standard input; the flags win over it")
	fl.StringVar(&at, "at", "", "begin of the activation, RFC 3339 (default now)")
	fl.StringVar(&since, "since", "", "from when the actor's work is its own, RFC 3339 (default its earliest activation that the engine has seen)")
	fl.StringVar(&grpc, "listen", "", "address of a new channel, HOST:PORT or unix:PATH")
	fl.StringVar(&http1, "listen-http", "", "a second address of a new channel, where HTTP clients are sent")
	fl.StringVar(&class, "class", "", "class of a new channel: workload (the default) or node")
	fl.StringVar(&mode, "mode", "", "permissions of a new channel's unix socket (default 0660)")
	fl.StringVar(&group, "group", "", "group of a new channel's unix socket")
	complete(cmd, "class", "workload", "node")
	return cmd
}

func identityFlag(key string) string { return strings.ReplaceAll(key, "_", "-") }

func readIdentity(file string, stdin io.Reader, id *api.Identity) error {
	b, err := io.ReadAll(stdin)
	if file != "-" {
		b, err = os.ReadFile(file)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, bare(err))
	}
	if err := api.DecodeStrict(b, id); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func channelsEndCmd() *cobra.Command {
	var (
		cl     client
		output string
	)
	cmd := &cobra.Command{
		Use:   "end NAME",
		Short: "End the activation of a channel and close it",
		Long: `end closes the channel's address, completes what is being worked on under the identity that it
came for, and closes every connection. The channel may then be activated anew.`,
		Example: `  wattloop channels end worker-1
  wattloop channels end worker-1 -o json`,
		Args:              wantArgs(1, 1, "one NAME"),
		ValidArgsFunction: completeChannels(&cl),
		RunE: func(cmd *cobra.Command, args []string) error {
			return cl.changeChannel(cmd, http.MethodDelete, args[0], nil, output)
		},
	}
	cl.addFlags(cmd)
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

// changeChannel asks for a change and prints the channel as it is then.
func (cl *client) changeChannel(cmd *cobra.Command, method, name string, body any, output string) error {
	b, code, err := cl.doJSON(cmd.Context(), method, "/api/v1/channels/"+url.PathEscape(name), body)
	if err != nil {
		return err
	}
	if code != http.StatusOK && code != http.StatusCreated {
		return refusedChannel(cmd, b, code)
	}
	if output == "json" {
		_, err := cmd.OutOrStdout().Write(b)
		return withCode(exitCannot, err)
	}
	var c api.Channel
	if err := json.Unmarshal(b, &c); err != nil {
		return withCode(exitCannot, fmt.Errorf("%s: not an answer of wattloop: %w", cl.where(), err))
	}
	return withCode(exitCannot, printChannels(cmd.OutOrStdout(), []api.Channel{c}))
}

// refusedChannel is an answer of the API as an error.
func refusedChannel(cmd *cobra.Command, body []byte, code int) error {
	var a struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &a) != nil || a.Error == "" {
		a.Error = strings.TrimSpace(string(body))
	}
	exit := exitFound
	if code == http.StatusInternalServerError || code == http.StatusForbidden {
		exit = exitCannot
	}
	return withCode(exit, fmt.Errorf("%s%s", place(cmd), a.Error))
}

func channelsTestCmd() *cobra.Command {
	var cl client
	cmd := &cobra.Command{
		Use:   "test NAME",
		Short: "Test from here whether connections to a channel get to it",
		Long: `test asks the channel at each of its addresses for what only it can answer. The engine does the
same when a channel is activated, but from where the engine is: run this in the network namespace
of the actor to find out whether a redirect there takes the connections. The engine is asked over
its socket, which is a file and the same in every network namespace.`,
		Example: `  wattloop channels test worker-1
  ip netns exec actor-1 wattloop channels test worker-1`,
		Args:              wantArgs(1, 1, "one NAME"),
		ValidArgsFunction: completeChannels(&cl),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, code, err := cl.doJSON(cmd.Context(), http.MethodPost, "/api/v1/channels/"+url.PathEscape(args[0])+"/prove", nil)
			if err != nil {
				return err
			}
			if code != http.StatusOK {
				return refusedChannel(cmd, b, code)
			}
			var q api.ChannelProof
			if err := json.Unmarshal(b, &q); err != nil {
				return withCode(exitCannot, fmt.Errorf("%s: not an answer of wattloop: %w", cl.where(), err))
			}
			return withCode(exitFound, testAddresses(cmd, q))
		},
	}
	cl.addFlags(cmd)
	return cmd
}

func testAddresses(cmd *cobra.Command, q api.ChannelProof) error {
	const patience = 5 * time.Second
	var errs []error
	for _, text := range q.Addresses {
		a, err := listen.ParseAddress(text)
		if err == nil {
			ctx, done := context.WithTimeout(cmd.Context(), patience)
			err = listen.Ask(ctx, (&net.Dialer{}).DialContext, a, listen.Proof{Path: q.Path, Answer: q.Answer})
			done()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s%w", place(cmd), err))
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s answers\n", a)
	}
	return errors.Join(errs...)
}

// completeChannels offers the names that the running engine knows.
func completeChannels(cl *client) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var all api.Channels
		if len(args) > 0 || cl.getJSON(cmd.Context(), "/api/v1/channels", &all) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, c := range all.Channels {
			names = append(names, cobra.CompletionWithDesc(c.Name, c.Class))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
