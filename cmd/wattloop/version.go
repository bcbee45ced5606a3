package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/wattloop/wattloop/actuate/nvml"
)

// version is set by the linker.
var version = "devel"

func versionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the Go it was built with, and what it can touch",
		Example: `  wattloop version
  wattloop version | head -1`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "wattloop %s (%s %s/%s)\nrapl: built in\nnvml: %s\n",
				version, runtime.Version(), runtime.GOOS, runtime.GOARCH, nvml.Probe())
			return withCode(exitCannot, err)
		},
	}
}
