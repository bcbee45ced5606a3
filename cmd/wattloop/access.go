package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/wattloop/wattloop/access"
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
		e, _, err := readEntry(n)
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
		e, at, err := readEntry(n)
		if err != nil {
			f.fail(at, "", "access: entry %d: %s", i+1, err)
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

// readEntry reads one entry. An error comes with the node that it lies in.
func readEntry(n *yaml.Node) (e accessEntry, at *yaml.Node, err error) {
	if n.Kind != yaml.MappingNode {
		return e, n, errors.New("want keys, like {role: push, token_file: PATH}")
	}
	given := 0
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i].Value, n.Content[i+1]
		var into *string
		switch k {
		case "role", "roles":
			if e.roles != nil {
				return e, n.Content[i], errors.New("has role and roles: want one of them")
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
			return e, n.Content[i], fmt.Errorf("unknown key %s; want role or roles, and token_file, token, user or peer", k)
		}
		if into != nil {
			given++
			if *into = v.Value; v.Kind != yaml.ScalarNode || v.Value == "" {
				return e, n.Content[i], fmt.Errorf("%s has no value", k)
			}
		}
		if err != nil {
			return e, v, err
		}
	}
	switch {
	case len(e.roles) == 0:
		return e, n, errors.New("has no role: want role: push, read, admin or actuate")
	case given != 1:
		return e, n, errors.New("want one of token_file, token, user and peer")
	}
	return e, nil, nil
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
