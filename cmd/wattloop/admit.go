package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strconv"

	"github.com/wattloop/wattloop/access"
	"github.com/wattloop/wattloop/access/webfile"
	"github.com/wattloop/wattloop/rules"
	"github.com/wattloop/wattloop/twin"
)

// hereError is an error that lies in this machine, not in the configuration: on
// another one there may be the user, the group or the file that is missing here.
type hereError struct{ error }

func (e hereError) Unwrap() error { return e.error }

// here marks what says that a file is not there, or not for this user to read.
func here(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return hereError{err}
	}
	return err
}

// admit reads who may come in and how, with all that is wrong about it. Serve
// starts with it, and check asks it too.
func (c *config) admit() (*webfile.File, *access.Guard, error) {
	web, err := c.openWeb()
	if err != nil {
		// Nobody knows its users; the rest can be wrong all the same.
		_, aerr := c.guardOf(nil, c.namedUsers())
		return nil, nil, errors.Join(err, aerr)
	}
	err = c.reach(web)
	guard, aerr := c.guardOf(web, web.Users())
	return web, guard, errors.Join(err, aerr)
}

func (c *config) guardOf(web *webfile.File, users []string) (*access.Guard, error) {
	who, err := c.accessConfig(web)
	who.Users = users
	guard, gerr := access.NewGuard(who)
	return guard, errors.Join(err, c.inAccess(gerr))
}

func (c *config) namedUsers() []string {
	var out []string
	for _, e := range c.Access {
		if e.user != "" {
			out = append(out, e.user)
		}
	}
	return out
}

// withoutError is an error that serve tells of and goes on.
type withoutError struct{ error }

func (e withoutError) Unwrap() error { return e.error }

// would says of a configuration that was read what serve would say of it here.
func (c *config) would() []error {
	_, _, err := c.admit()
	errs := flat(errors.Join(err, c.checkRemote(), c.checkWriter(), c.checkFetched()))
	for _, ch := range c.Channels {
		if err := ch.Spec.Here(); err != nil {
			errs = append(errs, withoutError{fmt.Errorf("channels (%s): %s: %w; the channel stays closed until there is", c.origin["channels"], ch.Spec.Name, err)})
		}
	}
	if err := twin.CheckFile(c.TwinSpec, c.Node); err != nil {
		errs = append(errs, withoutError{fmt.Errorf("twin.spec (%s): %w; serve goes on without a target", c.origin["twin.spec"], err)})
	}
	return errs
}

// messagesOf gives what lies in this machine the severity here.
func messagesOf(file string, errs []error, here string) []rules.Message {
	var out []rules.Message
	for _, err := range errs {
		m := rules.Message{File: file, Severity: rules.SeverityError, Text: err.Error()}
		switch {
		case errors.As(err, new(withoutError)):
			m.Severity = rules.SeverityWarning
		case errors.As(err, new(hereError)):
			m.Severity = here
		}
		out = append(out, m)
	}
	return out
}

// flat are the errors that errors.Join has made one of.
func flat(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || errors.Join(joined.Unwrap()...).Error() != err.Error() {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, flat(e)...)
	}
	return out
}

// sameAddress reports whether only one of two can be listened on: they are one, or
// one is of every address of the machine. Of port 0 the system gives each its own.
func sameAddress(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || hostA == "unix" || hostB == "unix" {
		return a == b && a != "unix:"
	}
	m, errA := strconv.ParseUint(portA, 10, 16)
	n, errB := strconv.ParseUint(portB, 10, 16)
	if errA != nil || errB != nil || m != n || n == 0 {
		return false
	}
	x, y := hostOf(hostA), hostOf(hostB)
	all := func(x, y netip.Addr) bool { return x.IsUnspecified() && (x.Is6() || y.Is4()) }
	return x == y || all(x, y) || all(y, x)
}

func hostOf(host string) netip.Addr {
	switch host {
	case "":
		host = "::"
	case "localhost":
		host = "127.0.0.1"
	}
	ip, _ := netip.ParseAddr(host)
	return ip.Unmap()
}
