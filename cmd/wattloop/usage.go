package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wattloop/wattloop/internal/nearest"
)

// usageTemplate is cobra's, with the examples at the end, where the eye is when
// the help has scrolled past.
const usageTemplate = `Usage:
  {{if .HasAvailableSubCommands}}{{.CommandPath}} VERB{{else}}{{.UseLine}}{{end}}
{{- if .HasAvailableSubCommands}}

Verbs:{{range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}
{{- if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}

Examples:
{{.Example}}
`

// tidy gives every verb the same manners: arguments nobody asked for are
// refused, a mistyped verb or flag is answered with the nearest one, and help
// ends with examples.
func tidy(c *cobra.Command) {
	c.SetUsageTemplate(usageTemplate)
	c.SetFlagErrorFunc(flagError)
	c.SuggestionsMinimumDistance = 2
	c.DisableFlagsInUseLine = true
	if c.Runnable() && c.HasAvailableFlags() {
		c.Use += " [FLAG]..."
	}
	for _, sub := range c.Commands() {
		tidy(sub)
	}
	switch {
	case c.HasSubCommands():
		c.Args = unknownVerb
		c.RunE = func(cmd *cobra.Command, _ []string) error {
			if !cmd.HasParent() {
				return cmd.Help()
			}
			return fmt.Errorf("%swant a verb: %s", place(cmd), strings.Join(verbs(cmd), ", "))
		}
	case c.Args == nil:
		c.Args = noArgs
	}
}

func verbs(c *cobra.Command) []string {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

func unknownVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := fmt.Sprintf("; %s --help lists them", cmd.CommandPath())
	if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
		hint = fmt.Sprintf(" (did you mean %q?)", s[0])
	}
	return fmt.Errorf("%sunknown verb %q%s", place(cmd), args[0], hint)
}

// place is the verb as messages begin with it.
func place(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return ""
	}
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ") + ": "
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%stakes no arguments, got %q; see %s --help", place(cmd), args[0], cmd.CommandPath())
}

// wantArgs asks for at least least arguments and at most most of them, 0 for
// any number. what names them.
func wantArgs(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("%swant %s; see %s --help", place(cmd), what, cmd.CommandPath())
		case most > 0 && len(args) > most:
			return fmt.Errorf("%swant %s, got also %q; quote it when it is one with spaces", place(cmd), what, args[most])
		}
		return nil
	}
}

// flagError names the verb and, for a flag that is none of its own, the nearest.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return fmt.Errorf("%s%w", place(cmd), err)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	best := nearest.Of(unknown.GetSpecifiedName(), names)
	if best == "" {
		return fmt.Errorf("%s%w; see %s --help", place(cmd), err, cmd.CommandPath())
	}
	return fmt.Errorf("%s%w (did you mean --%s?)", place(cmd), err, best)
}

// outputFlag registers -o with what a verb can print, the first by default.
func outputFlag(cmd *cobra.Command, p *string, can ...string) {
	*p = can[0]
	last := len(can) - 1
	cmd.Flags().VarP(word(p, can...), "output", "o", strings.Join(can[:last], ", ")+" or "+can[last])
	complete(cmd, "output", can...)
}

// checkOutput checks -o of a verb whose flag takes any text.
func checkOutput(got string, can ...string) error {
	for _, c := range can {
		if got == c {
			return nil
		}
	}
	return fmt.Errorf("-o %q: want %s", got, strings.Join(can, " or "))
}
