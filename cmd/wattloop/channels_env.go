package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wattloop/wattloop/api"
)

// exportInterval is how often an actor's SDK exports its metrics: well below the
// 60 s of the SDKs, so that an actor that lives shortly exports at all (S2-22).
const exportInterval = 10 * time.Second

func channelsEnvCmd() *cobra.Command {
	var (
		cl                client
		output, container string
	)
	cmd := &cobra.Command{
		Use:   "env NAME",
		Short: "Print the environment that an actor on a channel is given",
		Long: `env prints the variables that point an OpenTelemetry SDK at a channel. They are constants: the same
for every actor of every template and over all activations, so that a snapshot that has them
frozen has the right ones. Who the actor is stands in none of them; the channel says it.

Only the name of the container differs, per container of a template: OTLP has no pipe of its own
for each. With --container the line for one container is printed too.

Changing any of these on a template that exists needs its golden snapshot to be made anew.`,
		Example: `  wattloop channels env worker-1
  wattloop channels env worker-1 --container app -o json`,
		Args:              wantArgs(1, 1, "one NAME"),
		ValidArgsFunction: completeChannels(&cl),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := cl.oneChannel(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			vars, err := actorEnv(c, container)
			if err != nil {
				return withCode(exitFound, fmt.Errorf("%s%w", place(cmd), err))
			}
			if output == "json" {
				m := map[string]string{}
				for _, v := range vars {
					m[v.name] = v.value
				}
				return withCode(exitCannot, writeIndented(cmd.OutOrStdout(), m))
			}
			var b strings.Builder
			for _, v := range vars {
				fmt.Fprintf(&b, "%s=%s\n", v.name, v.value)
			}
			if container == "" {
				b.WriteString("# and for each container of the template, by its own name:\n# OTEL_RESOURCE_ATTRIBUTES=container.name=NAME\n")
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), b.String())
			return withCode(exitCannot, err)
		},
	}
	cl.addFlags(cmd)
	outputFlag(cmd, &output, "env", "json")
	cmd.Flags().StringVar(&container, "container", "", "print also the line of the container of this name")
	return cmd
}

type variable struct{ name, value string }

// actorEnv is the environment of an actor on a channel (S2-19 to S2-25).
func actorEnv(c api.Channel, container string) ([]variable, error) {
	if len(c.Addresses) == 0 {
		return nil, fmt.Errorf("channel %s: listens nowhere", c.Name)
	}
	at := c.Addresses[0]
	if strings.HasSuffix(at, ":0") {
		return nil, fmt.Errorf("channel %s: %s: the port is picked at the first activation", c.Name, at)
	}
	endpoint := "http://" + at
	if path, ok := strings.CutPrefix(at, "unix:"); ok {
		endpoint = "unix://" + path
	}
	vars := []variable{
		{"OTEL_EXPORTER_OTLP_ENDPOINT", endpoint},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
		{"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"},
		{"OTEL_METRIC_EXPORT_INTERVAL", strconv.FormatInt(exportInterval.Milliseconds(), 10)},
	}
	if container != "" {
		if i := strings.IndexFunc(container, func(r rune) bool { return !containerRune(r) }); i >= 0 {
			return nil, fmt.Errorf("--container %q: want letters, digits and - _ . alone: the line is read by shells and by SDKs", container)
		}
		vars = append(vars, variable{"OTEL_RESOURCE_ATTRIBUTES", "container.name=" + container})
	}
	return vars, nil
}

// containerRune reports whether a container's name may have it: what is neither
// special to a shell that evaluates the line nor in OTEL_RESOURCE_ATTRIBUTES. All
// container names of Kubernetes are so.
func containerRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.", r)
}
