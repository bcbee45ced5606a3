package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/wattloop/wattloop/rules"
)

// checkServe says what keeps serve from starting here. c was loaded. The engine's
// part is asked as the user that it would be, who may not read what root may.
func (c *config) checkServe(cmd *cobra.Command, strict bool, output string) error {
	if _, err := c.devices(); err != nil {
		return err
	}
	cred, err := c.credential()
	if err != nil {
		return err
	}
	args := append(c.engineArgs(cmd.Flags()), "--check.output="+output)
	if strict {
		args = append(args, "--check.strict")
	}
	child := exec.CommandContext(cmd.Context(), selfExe)
	child.Args = append([]string{os.Args[0]}, args...)
	child.Stdout, child.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	child.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	err = child.Run()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended) && ended.Exited():
		return withCode(ended.ExitCode(), errSaid)
	case err != nil:
		return withCode(exitCannot, err)
	}
	return nil
}

// checkEngine says what keeps the engine from starting, in the engine's process.
// c was loaded.
func (c *config) checkEngine() (checked, error) {
	got := checked{messages: messagesOf(c.File, c.would(), rules.SeverityError)}
	sources, err := ruleSources(c.Rules)
	if err != nil {
		return got, err
	}
	shipped, err := shippedRules()
	if err != nil {
		return got, err
	}
	got.rules = len(sources) - len(shipped)
	set, msgs := loadMasked(sources, c.ruleSettings())
	got.set, got.messages = set, append(got.messages, msgs...)
	return got, nil
}
