package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/wattloop/wattloop/access"
	"github.com/wattloop/wattloop/access/webfile"
)

// accessConfig is what the engine's guard decides by.
func (c *config) accessConfig(web *webfile.File) (access.Config, error) {
	out := access.Config{Hosts: c.WebHosts, Owner: uint32(os.Geteuid()), Users: web.Users()}
	if len(out.Users) > 0 {
		out.Password = web.Password
	}
	var errs []error
	for i, e := range c.Access {
		cr, err := e.credential()
		if err != nil {
			errs = append(errs, c.inAccess(fmt.Errorf("entry %d: %w", i+1, err)))
			// It keeps the numbers of those that follow, and lets in who has every role.
			cr = access.Credential{Roles: e.roles, Peer: &access.Peer{UID: &out.Owner}}
		}
		out.Credentials = append(out.Credentials, cr)
	}
	return out, errors.Join(errs...)
}

// inAccess says that an error is one of the key access.
func (c *config) inAccess(err error) error {
	if err == nil {
		return nil
	}
	var out []error
	for _, err := range flat(err) {
		out = append(out, fmt.Errorf("access (%s): %w", c.origin["access"], err))
	}
	return errors.Join(out...)
}

// credential reads what the entry names.
func (e accessEntry) credential() (access.Credential, error) {
	c := access.Credential{Roles: e.roles, Token: e.token, User: e.user}
	var err error
	switch {
	case e.tokenFile != "":
		c.Token, err = readToken(e.tokenFile)
	case e.peer != nil:
		c.Peer, err = lookupPeer(e.peer)
	}
	return c, err
}

// readToken is the first line of a file that nobody else may read.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", here(fmt.Errorf("%s: %w; user %d must be able to read it", path, bare(err), os.Geteuid()))
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s: others may read the token (mode %#o): chmod 600 %s", path, fi.Mode().Perm(), path)
	}
	line, err := bufio.NewReader(io.LimitReader(f, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("%s: %w", path, bare(err))
	}
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("%s: its first line is empty: openssl rand -hex 32 > %s", path, path)
	}
	return line, nil
}

func lookupPeer(m map[string]string) (*access.Peer, error) {
	number := func(key, text string) (*uint32, error) {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("peer: %s %q is no number", key, text)
		}
		id := uint32(n)
		return &id, nil
	}
	p := &access.Peer{}
	for _, key := range sortedKeys(m) {
		var err error
		switch text := m[key]; key {
		case "uid":
			p.UID, err = number(key, text)
		case "gid":
			p.GID, err = number(key, text)
		case "user":
			u, uerr := user.Lookup(text)
			if uerr != nil {
				return nil, hereError{fmt.Errorf("peer: no user %s on this machine", text)}
			}
			p.UID, err = number(key, u.Uid)
		case "group":
			g, gerr := user.LookupGroup(text)
			if gerr != nil {
				return nil, hereError{fmt.Errorf("peer: no group %s on this machine", text)}
			}
			p.GID, err = number(key, g.Gid)
		}
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}
