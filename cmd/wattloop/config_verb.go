package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func configCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show or write the configuration",
		Example: `  wattloop config show
  wattloop config init > wattloop.yaml`,
	}
	cmd.AddCommand(configShowCmd(), configInitCmd())
	return cmd
}

func configShowCmd() *cobra.Command {
	c := defaultConfig()
	var output string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print every setting, its value and where it came from",
		Example: `  wattloop config show
  WATTLOOP_STORAGE_PATH=/tmp/data wattloop config show -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.load(cmd.Flags(), os.LookupEnv); err != nil {
				return withCode(exitFound, err)
			}
			return withCode(exitCannot, c.show(cmd.OutOrStdout(), output))
		},
	}
	c.addFlags(cmd.Flags())
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

func configInitCmd() *cobra.Command {
	var warden bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Print a configuration file with every key and its default, commented out",
		Example: `  wattloop config init > /etc/wattloop/wattloop.yaml
  wattloop config init --warden > /etc/wattloop/warden.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), configTemplate(warden))
			return withCode(exitCannot, err)
		},
	}
	cmd.Flags().BoolVar(&warden, "warden", false, "the warden's own file instead")
	return cmd
}

// shown is one row of config show.
type shown struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
	Change string `json:"change"`
}

func (c *config) show(w io.Writer, output string) error {
	var rows []shown
	for _, s := range c.settings() {
		rows = append(rows, shown{s.key, s.value.String(), c.origin[s.key], s.change})
	}
	if output == "json" {
		return writeIndented(w, rows)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "KEY\tVALUE\tFROM")
	for _, r := range rows {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", r.Key, r.Value, r.Origin)
	}
	return tw.Flush()
}

// changes spells the letter of a setting.
var changes = map[string]string{changeRestart: "needs a restart", changeLive: "reloaded live", changeWarden: "needs a restart"}

// configTemplate is wattloop.yaml, or the warden's file, with every key of this
// version as a comment.
func configTemplate(warden bool) string {
	var b strings.Builder
	b.WriteString("# Every key of wattloop.yaml with its default. Uncomment what you change.\n")
	if warden {
		b.Reset()
		b.WriteString("# Every key of warden.yaml, what only the owner of the machine decides. It belongs to root.\n")
	}
	b.WriteString("# A flag of the same name wins over a variable (WATTLOOP_KEY), which wins over this file.\n")
	for _, s := range defaultConfig().settings() {
		if (s.change == changeWarden) == warden {
			v := templateValue(s)
			if s.key == "node" { // this machine's own, for the file is for this machine
				v = s.value.String()
			}
			if v == "" {
				v = `""`
			}
			fmt.Fprintf(&b, "\n# %s (%s)\n# %s: %s\n", s.help, changes[s.change], s.key, v)
			switch s.key {
			case "channels":
				b.WriteString(channelsExample)
			case "access":
				b.WriteString(accessExample)
			}
		}
	}
	return b.String()
}

// channelsExample stands below the key in the template; a test reads it.
const channelsExample = `#   - name: worker-1                # an actor's own way in: it exists while its identity is set
#     listen: {grpc: 169.254.17.1:4317, http: 169.254.17.1:4318}
#     limits: {points: 5000, bytes: 4MiB, new_series: 600}
#   - name: exporters               # trusted producers of this node
#     class: node
#     listen: unix:/run/wattloop/exporters/otlp.sock
#     nodes: [worker-01]
`

// accessExample is how a token comes to be.
const accessExample = `#   To make a token, as the user that the engine runs as (engine.user):
#     umask 077; openssl rand -hex 32 > /etc/wattloop/push.token
#   and to have it asked for, a role with a token being open to nobody else:
#     access:
#       - {role: push, token_file: /etc/wattloop/push.token}
#       - {roles: [read, admin], token: "${env:WATTLOOP_ADMIN_TOKEN}"}
#       - {role: read, user: grafana}              of web.config_file
#       - {role: admin, peer: {group: operators}}  over api.socket
`

// templateValue is a default as a file has it: the same on every machine.
func templateValue(s setting) string {
	v := s.value.String()
	if _, ok := s.value.(*listValue); ok {
		return "[" + strings.ReplaceAll(v, ",", ", ") + "]"
	}
	switch s.key {
	case "node":
		return "the host name"
	case "storage.path":
		return "/var/lib/wattloop/data"
	case "run.path":
		return machineRun
	case "api.socket":
		return machineRun + "/wattloop.sock"
	case "sysfs":
		return "/sys"
	case "engine.user":
		return "wattloop"
	case "web.config_file":
		return `""`
	default:
		return v
	}
}
