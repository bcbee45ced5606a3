package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// minToken is how short a token may be, in bytes.
const minToken = 32

// Credential is one thing that proves roles: a token, a user of the web file, or
// who is at the other end of a unix socket. Exactly one of the three is set.
type Credential struct {
	Roles []Role
	Token string
	User  string
	Peer  *Peer
}

// Peer is whom a unix socket's other end must belong to. What is nil is not
// asked for; a group counts also where it is not the primary one.
type Peer struct{ UID, GID *uint32 }

// Config is what a Guard decides by.
type Config struct {
	Credentials []Credential
	// Hosts are names that a request may give as its Host, beside those of the
	// loopback and the address that it came to.
	Hosts []string
	// Owner is the user who has every role on a unix socket, as root has.
	Owner uint32
	// Users are the names, and Password the check, of basic authentication. A
	// user whom no credential names may read, as behind the exporter-toolkit. An
	// error of Password is that it cannot tell now: the request is to be repeated.
	Users    []string
	Password func(user, password string) (bool, error)
}

// Guard knows the credentials. The zero value and nil know none. It is safe for
// concurrent use.
type Guard struct{ now atomic.Pointer[state] }

// state is a Config made ready. It is immutable.
type state struct {
	tokens   []token
	users    map[string]set
	peers    []Credential
	owner    uint32
	hosts    []string
	password func(user, password string) (bool, error)
	asked    set // roles that some credential has: nobody else has them over TCP
	overTCP  set // roles that a token or a user has
}

type token struct {
	sum   [sha256.Size]byte
	roles set
}

var nobody = &state{owner: ^uint32(0)}

func (g *Guard) state() *state {
	if g != nil {
		if s := g.now.Load(); s != nil {
			return s
		}
	}
	return nobody
}

// NewGuard returns a Guard that decides by c. An error never holds a token.
func NewGuard(c Config) (*Guard, error) {
	g := &Guard{}
	return g, g.Replace(c)
}

// Replace has the Guard decide by c from now on, or on an error as before.
func (g *Guard) Replace(c Config) error {
	s := &state{users: map[string]set{}, owner: c.Owner, hosts: c.Hosts, password: c.Password}
	var errs []error
	for i, cr := range c.Credentials {
		if err := s.add(cr, c.Users); err != nil {
			errs = append(errs, fmt.Errorf("entry %d: %w", i+1, err))
		}
	}
	for _, u := range c.Users {
		if _, named := s.users[u]; !named {
			s.users[u] = set{Read}
			s.asked, s.overTCP = s.asked.plus(set{Read}), s.overTCP.plus(set{Read})
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	g.now.Store(s)
	return nil
}

func (s *state) add(c Credential, users []string) error {
	if len(c.Roles) == 0 {
		return errors.New("has no role: want role: push, read, admin or actuate")
	}
	for _, r := range c.Roles {
		if _, err := ParseRole(string(r)); err != nil {
			return err
		}
	}
	roles := set(c.Roles)
	switch n := btoi(c.Token != "") + btoi(c.User != "") + btoi(c.Peer != nil); {
	case n != 1:
		return errors.New("want one of token, token_file, user and peer")
	case c.Token != "":
		if err := s.addToken(c.Token, roles); err != nil {
			return err
		}
	case c.User != "":
		if !slices.Contains(users, c.User) {
			return fmt.Errorf("user %s: the web.config_file has no user of that name", c.User)
		}
		s.users[c.User] = s.users[c.User].plus(roles)
	case c.Peer.UID == nil && c.Peer.GID == nil:
		return errors.New("peer: want uid, gid, user or group")
	default:
		s.peers = append(s.peers, c)
		s.asked = s.asked.plus(roles)
		return nil
	}
	s.asked, s.overTCP = s.asked.plus(roles), s.overTCP.plus(roles)
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (s *state) addToken(text string, roles set) error {
	switch {
	case len(text) < minToken:
		return fmt.Errorf("the token has %d characters: want at least %d, as openssl rand -hex 32 makes them", len(text), minToken)
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("the token has characters that a header cannot carry: want printable ASCII without spaces")
	}
	sum := sha256.Sum256([]byte(text))
	if s.find(sum) != nil {
		return errors.New("the token stands in an earlier entry already: give that one all its roles, as in roles: [read, admin]")
	}
	s.tokens = append(s.tokens, token{sum, roles})
	return nil
}

// find compares with every token, in a time that hangs on none of them.
func (s *state) find(sum [sha256.Size]byte) set {
	var found set
	for _, t := range s.tokens {
		if subtle.ConstantTimeCompare(t.sum[:], sum[:]) == 1 {
			found = t.roles
		}
	}
	return found
}

// OverTCP reports whether a token or a user has the role.
func (g *Guard) OverTCP(r Role) bool { return g.state().overTCP.has(r) }
