// Command wattloop measures a machine and acts on what it sees: OTLP comes in,
// rules written as PromQL in YAML run on it, and power caps are written, read
// back and given back.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes (docs: wattloop help).
const (
	exitFine    = 0 // all went well
	exitFound   = 1 // something was found: a bad file, a difference
	exitUsage   = 2 // the command line is wrong
	exitCannot  = 3 // could not ask or do: no engine, a port in use, a locked folder
	exitPartial = 4 // the answer is incomplete: a cut recording
)

// exitError carries an exit code. An empty message was said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code, err}
}

// errSaid is an error whose text is on stderr already.
var errSaid = errors.New("")

func main() { os.Exit(Main()) }

// Main runs the command line and gives the exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cmd := newRoot()
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitFine
	}
	var e *exitError
	if !errors.As(err, &e) {
		fmt.Fprintf(stderr, "wattloop: %v\n", err)
		return exitUsage // cobra's own: an unknown verb or flag
	}
	if e.err != errSaid {
		fmt.Fprintf(stderr, "wattloop: %v\n", err)
	}
	return e.code
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "wattloop",
		Short: "Keep a machine within its power",
		Long: `wattloop measures a machine and acts on what it sees. OTLP metrics come in, rules written
as PromQL in YAML run the moment a sample arrives, and power caps are written, read back
and given back.

Exit codes: 0 fine, 1 found something, 2 wrong usage, 3 could not ask or do, 4 answer incomplete.`,
		Example: `  wattloop demo                       a simulated node; nothing on this machine is touched
  wattloop serve --rules ./rules.d    run; nothing is written until --actuation.enabled`,
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(serveCmd(), engineCmd(), demoCmd(), replayCmd(), relayCmd(), checkCmd(), queryCmd(), rulesCmd(), capsCmd(), channelsCmd(),
		statusCmd(), configCmd(), completionCmd(), versionCmd())
	tidy(root)
	return root
}
