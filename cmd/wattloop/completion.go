package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func completionCmd() *cobra.Command {
	shells := map[string]func(*cobra.Command, io.Writer) error{
		"bash": func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"zsh":  func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) },
		"fish": func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) },
	}
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print the completion script of bash, zsh or fish",
		Long: `completion prints a script that teaches a shell the verbs and flags of wattloop, and the names of
the rules where a verb takes one. Source it, or put it where the shell looks for completions.`,
		Example: `  source <(wattloop completion bash)
  wattloop completion fish > ~/.config/fish/completions/wattloop.fish`,
		Args:      wantArgs(1, 1, "one SHELL: bash, fish or zsh"),
		ValidArgs: sortedKeys(shells),
		RunE: func(cmd *cobra.Command, args []string) error {
			gen, ok := shells[args[0]]
			if !ok {
				return fmt.Errorf("%sunknown shell %q; want bash, fish or zsh", place(cmd), args[0])
			}
			return withCode(exitCannot, gen(cmd.Root(), cmd.OutOrStdout()))
		},
	}
}

// complete offers words as the values of a flag.
func complete(cmd *cobra.Command, flag string, words ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic("BUG: " + err.Error())
	}
}

// completeRules offers the names of the rules that the command line so far
// would load, with their kind.
func completeRules(c *config) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 || c.load(cmd.Flags(), os.LookupEnv) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		set, _, err := c.loadRules()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, x := range explanations(set) {
			names = append(names, cobra.CompletionWithDesc(x.Name, x.Kind))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeRuleFiles offers rule files and the folders that hold them.
func completeRuleFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}
