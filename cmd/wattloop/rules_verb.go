package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/wattloop/wattloop/internal/nearest"
	"github.com/wattloop/wattloop/rules"
)

func rulesCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "List and explain the rules that serve would run",
		Example: `  wattloop rules list
  wattloop rules explain node_power`,
	}
	cmd.AddCommand(rulesListCmd(), rulesExplainCmd())
	return cmd
}

func rulesListCmd() *cobra.Command {
	c := defaultConfig()
	var output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "One line a rule: kind, what it is, where it stands",
		Example: `  wattloop rules list
  wattloop rules list --rules ./rules.d -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := loadForVerb(cmd, c)
			if err != nil {
				return err
			}
			return withCode(exitCannot, listRules(cmd.OutOrStdout(), explanations(set), set, output))
		},
	}
	c.addFlags(cmd.Flags(), ruleKeys...)
	outputFlag(cmd, &output, "table", "json")
	return cmd
}

func explanations(set *rules.Set) []rules.Explanation {
	out := []rules.Explanation{}
	for _, r := range set.Readings {
		out = append(out, r.Explain())
	}
	for _, c := range set.Controls {
		out = append(out, c.Explain())
	}
	return out
}

func listRules(w io.Writer, xs []rules.Explanation, set *rules.Set, output string) error {
	if output == "json" {
		return writeIndented(w, xs)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "NAME\tKIND\tMODE\tWHERE\tHELP")
	for _, x := range xs {
		mode, help := "-", ""
		if c := set.Control(x.Name); c != nil {
			mode, help = string(c.Mode), c.Help
		} else {
			help = set.Reading(x.Name).Help
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s:%d\t%s\n", x.Name, x.Kind, mode, x.File, x.Line, strings.Join(strings.Fields(help), " "))
	}
	return tw.Flush()
}

func writeIndented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func rulesExplainCmd() *cobra.Command {
	c := defaultConfig()
	var output string
	cmd := &cobra.Command{
		Use:   "explain NAME",
		Short: "Print the exact queries that run for a rule, and where each of its words comes from",
		Long: `Print the exact queries that run for a rule, and where each of its words comes from. -o words
prints the expressions as the files have them instead, readings and parameters put in: before
rate( is read, and without the matcher on channel that keeps workloads out.`,
		Example: `  wattloop rules explain node_power
  wattloop rules explain node_power -o promql`,
		Args:              wantArgs(1, 1, "the NAME of one rule"),
		ValidArgsFunction: completeRules(c),
	}
	c.addFlags(cmd.Flags(), ruleKeys...)
	outputFlag(cmd, &output, "table", "json", "promql", "words")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		set, err := loadForVerb(cmd, c)
		if err != nil {
			return err
		}
		x, err := explain(set, args[0])
		if err != nil {
			return withCode(exitFound, err)
		}
		return withCode(exitCannot, printExplanation(cmd.OutOrStdout(), x, output))
	}
	return cmd
}

func explain(set *rules.Set, name string) (rules.Explanation, error) {
	if r := set.Reading(name); r != nil {
		return r.Explain(), nil
	}
	if c := set.Control(name); c != nil {
		return c.Explain(), nil
	}
	if why := set.Off[name]; why != "" {
		return rules.Explanation{}, fmt.Errorf("rules: %s: %s", name, why)
	}
	names := sortedKeys(set.Off)
	for _, x := range explanations(set) {
		names = append(names, x.Name)
	}
	if best := nearest.Of(name, names); best != "" {
		return rules.Explanation{}, fmt.Errorf("rules: no rule %q (did you mean %q?)", name, best)
	}
	return rules.Explanation{}, fmt.Errorf("rules: no rule %q; wattloop rules list has them all", name)
}

// loadForVerb is the set that serve would run, with its warnings told.
func loadForVerb(cmd *cobra.Command, c *config) (*rules.Set, error) {
	if err := c.load(cmd.Flags(), os.LookupEnv); err != nil {
		return nil, withCode(exitFound, err)
	}
	set, msgs, err := c.loadRules()
	if err != nil {
		return nil, withCode(exitFound, err)
	}
	for _, m := range msgs {
		fmt.Fprintln(cmd.ErrOrStderr(), m.String())
	}
	return set, nil
}

func printExplanation(w io.Writer, x rules.Explanation, output string) error {
	switch output {
	case "json":
		return writeIndented(w, x)
	case "promql", "words":
		for _, q := range x.Queries {
			if len(x.Queries) > 1 {
				fmt.Fprintf(w, "# %s\n", q.Title())
			}
			text := q.Expr
			if output == "words" {
				text = q.Words
			}
			fmt.Fprintln(w, text)
		}
		return nil
	}
	_, err := io.WriteString(w, x.String())
	return err
}
