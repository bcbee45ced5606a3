package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/wattloop/wattloop/access"
	"github.com/wattloop/wattloop/access/webfile"
)

// masked stands for a token wherever one could be shown.
const masked = "<secret>"

// accessList is the key access: who may do what.
type accessList []accessEntry

type accessEntry struct {
	roles                  []access.Role
	token, tokenFile, user string
	peer                   map[string]string // uid, gid, user, group
}

func (l *accessList) Type() string { return "yaml" }

// String never has a token in it.
func (l *accessList) String() string {
	if len(*l) == 0 {
		return "[]"
	}
	all := make([]string, len(*l))
	for i, e := range *l {
		roles := make([]string, len(e.roles))
		for j, r := range e.roles {
			roles[j] = string(r)
		}
		all[i] = "{roles: [" + strings.Join(roles, ", ") + "]"
		switch {
		case e.token != "":
			all[i] += ", token: " + masked
		case e.tokenFile != "":
			all[i] += ", token_file: " + e.tokenFile
		case e.user != "":
			all[i] += ", user: " + e.user
		}
		for _, k := range sortedKeys(e.peer) {
			all[i] += ", peer " + k + ": " + e.peer[k]
		}
		all[i] += "}"
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// Set reads the list from YAML. What it says of an error has no token in it: the
// tree is read by hand, since the library would show the text.
func (l *accessList) Set(s string) error {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(s), &doc); err != nil || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.SequenceNode {
		return errors.New("want a list like [{role: push, token_file: /etc/wattloop/push.token}]")
	}
	out := accessList{}
	for i, n := range doc.Content[0].Content {
		e, err := readEntry(n)
		if err != nil {
			return fmt.Errorf("entry %d: %w", i+1, err)
		}
		out = append(out, e)
	}
	*l = out
	return nil
}

// read takes the list from a file. Each wrong entry is told, with its line.
func (l *accessList) read(v *yaml.Node, f *fileReader) {
	before := len(f.messages)
	defer f.hide(v, before)()
	if err := f.resolve(v); err != nil {
		f.fail(v, "", "access: %s", err)
		return
	}
	if v.Kind != yaml.SequenceNode {
		text, err := f.scalar(v)
		if err == nil {
			err = l.Set(text)
		}
		if err != nil {
			f.fail(v, "", "access: %s", err)
		}
		return
	}
	out := accessList{}
	for i, n := range v.Content {
		e, err := readEntry(n)
		if err != nil {
			f.fail(n, "", "access: entry %d: %s", i+1, err)
			continue
		}
		out = append(out, e)
	}
	if len(f.messages) == before {
		*l = out
	}
}

// hide returns what takes out of the messages from one on what may be a token
// under a mistyped key.
func (f *fileReader) hide(v *yaml.Node, from int) func() {
	var secrets []string
	var collect func(key string, n *yaml.Node)
	collect = func(key string, n *yaml.Node) {
		switch {
		case n.Kind == yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				collect(n.Content[i].Value, n.Content[i+1])
			}
		case n.Kind == yaml.ScalarNode && len(n.Value) > 3 && !slices.Contains([]string{"role", "roles", "user", "token_file", "uid", "gid", "group"}, key):
			secrets = append(secrets, n.Value)
		default:
			for _, c := range n.Content {
				collect(key, c)
			}
		}
	}
	collect("", v)
	return func() {
		for i := from; i < len(f.messages); i++ {
			for _, s := range secrets {
				f.messages[i].SourceLine = strings.ReplaceAll(f.messages[i].SourceLine, s, masked)
			}
		}
	}
}

func readEntry(n *yaml.Node) (e accessEntry, err error) {
	if n.Kind != yaml.MappingNode {
		return e, errors.New("want keys, like {role: push, token_file: PATH}")
	}
	given := 0
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i].Value, n.Content[i+1]
		var into *string
		switch k {
		case "role", "roles":
			if e.roles != nil {
				return e, errors.New("has role and roles: want one of them")
			}
			e.roles, err = readRoles(v)
		case "peer":
			given++
			e.peer, err = readPeer(v)
		case "token":
			into = &e.token
		case "token_file":
			into = &e.tokenFile
		case "user":
			into = &e.user
		default:
			return e, fmt.Errorf("unknown key %s; want role or roles, and token_file, token, user or peer", k)
		}
		if into != nil {
			given++
			if *into = v.Value; v.Kind != yaml.ScalarNode || v.Value == "" {
				return e, fmt.Errorf("%s has no value", k)
			}
		}
		if err != nil {
			return e, err
		}
	}
	switch {
	case len(e.roles) == 0:
		return e, errors.New("has no role: want role: push, read, admin or actuate")
	case given != 1:
		return e, errors.New("want one of token_file, token, user and peer")
	}
	return e, nil
}

func readRoles(v *yaml.Node) ([]access.Role, error) {
	items := v.Content
	if v.Kind == yaml.ScalarNode {
		items = []*yaml.Node{v}
	}
	var out []access.Role
	for _, it := range items {
		r, err := access.ParseRole(it.Value)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func readPeer(v *yaml.Node) (map[string]string, error) {
	out := map[string]string{}
	if v.Kind != yaml.MappingNode || len(v.Content) == 0 {
		return nil, errors.New("peer: want {uid, gid, user or group}")
	}
	for i := 0; i+1 < len(v.Content); i += 2 {
		k := v.Content[i].Value
		if !slices.Contains([]string{"uid", "gid", "user", "group"}, k) || v.Content[i+1].Value == "" {
			return nil, fmt.Errorf("peer: key %s: want uid, gid, user or group, and its value", k)
		}
		out[k] = v.Content[i+1].Value
	}
	return out, nil
}

// hasPeer says whether somebody else than the owner may use the socket.
func (l accessList) hasPeer() bool {
	return slices.ContainsFunc(l, func(e accessEntry) bool { return e.peer != nil })
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

// checkDoors is what can be said of the listeners without the credentials.
func (c *config) checkDoors() (*webfile.File, error) {
	web, err := c.openWeb()
	if err == nil {
		err = c.reach(web)
	}
	return web, err
}

// openWeb opens the web file, nil without one.
func (c *config) openWeb() (*webfile.File, error) {
	if c.WebConfig == "" {
		return nil, nil
	}
	web, err := webfile.Open(c.WebConfig)
	if err != nil {
		return nil, here(fmt.Errorf("web.config_file (%s): %w", c.origin["web.config_file"], err))
	}
	return web, nil
}

// reach refuses a listener that other machines can reach and that has not both
// TLS and something to ask for.
func (c *config) reach(web *webfile.File) error {
	var errs []error
	for _, l := range []struct {
		key, addr string
		role      access.Role
	}{{"web.listen", c.WebListen, access.Read}, {"otlp.grpc.listen", c.GRPCListen, access.Push}, {"otlp.http.listen", c.HTTPListen, access.Push}} {
		if l.addr == "" || loopback(l.addr) {
			continue
		}
		var lacks []string
		if web.TLS() == nil {
			lacks = append(lacks, "TLS (web.config_file with tls_server_config)")
		}
		if !c.asksFor(l.role, web) {
			lacks = append(lacks, fmt.Sprintf("a token or user with the role %s (access)", l.role))
		}
		if len(lacks) > 0 {
			_, port, _ := net.SplitHostPort(l.addr)
			errs = append(errs, fmt.Errorf("%s (%s): %s can be reached from other machines, which needs %s; or listen on 127.0.0.1:%s",
				l.key, c.origin[l.key], l.addr, strings.Join(lacks, " and "), port))
		}
	}
	return errors.Join(errs...)
}

// asksFor says whether some token or user has the role.
func (c *config) asksFor(r access.Role, web *webfile.File) bool {
	named := map[string]bool{}
	for _, e := range c.Access {
		if e.peer == nil && slices.Contains(e.roles, r) {
			return true
		}
		named[e.user] = true
	}
	return r == access.Read && slices.ContainsFunc(web.Users(), func(u string) bool { return !named[u] })
}

// loopback reports whether only this machine can reach an address.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

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
