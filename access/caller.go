package access

import (
	"crypto/sha256"
	"encoding/base64"
	"net"
	"strconv"
	"strings"
)

// Caller is who asks, as far as it can be told.
type Caller struct {
	roles  set
	token  bool // a token was taken, which no browser sends by itself
	proven bool // a credential was taken, or a socket says who it is
	wrong  bool // a credential was given that is none
	later  bool // a password was given that could not be checked now
	socket bool // it comes over a unix socket,
	here   bool // or over TCP to an address of the loopback
	who    string
}

// Caller tells who asks: local is the own end of the connection, authorization
// what the request has under that name.
func (g *Guard) Caller(local net.Addr, authorization []string) Caller {
	s := g.state()
	c := Caller{who: "this credential"}
	switch a := local.(type) {
	case *PeerAddr:
		c.socket = true
		c.peer(s, a)
	case *net.TCPAddr:
		c.here = a.IP.IsLoopback()
	default:
		c.socket = local != nil && local.Network() == "unix"
	}
	if len(authorization) > 0 {
		c.credential(s, authorization)
	}
	return c
}

// peer takes the roles of whoever is at the other end of a socket.
func (c *Caller) peer(s *state, a *PeerAddr) {
	if !a.Known {
		return
	}
	c.proven, c.who = true, "user "+strconv.FormatUint(uint64(a.UID), 10)
	if a.UID == 0 || a.UID == s.owner {
		c.roles = Roles()
		return
	}
	for _, p := range s.peers {
		if p.Peer.matches(a) {
			c.roles = c.roles.plus(p.Roles)
		}
	}
}

// credential adds the roles of what was sent. What is no credential is wrong
// even where nothing was asked for, so that a slip is noticed.
func (c *Caller) credential(s *state, sent []string) {
	scheme, rest, _ := strings.Cut(sent[0], " ")
	rest = strings.TrimSpace(rest)
	var roles set
	known, isToken := false, false
	switch {
	case len(sent) > 1:
	case strings.EqualFold(scheme, "bearer"):
		roles = s.find(sha256.Sum256([]byte(rest)))
		known, isToken = roles != nil, true
	case strings.EqualFold(scheme, "basic"):
		roles, known, c.later = s.basic(rest)
	}
	if !known {
		c.wrong = !c.later
		return
	}
	c.roles, c.proven, c.token = c.roles.plus(roles), true, isToken
}

// basic reads the credentials of basic authentication (RFC 7617), or says that it
// could not tell now.
func (s *state) basic(sent string) (roles set, known, later bool) {
	if s.password == nil {
		return nil, false, false
	}
	plain, err := base64.StdEncoding.DecodeString(sent)
	user, password, ok := strings.Cut(string(plain), ":")
	if err != nil || !ok {
		return nil, false, false
	}
	if fits, err := s.password(user, password); !fits {
		return nil, false, err != nil
	}
	if roles, named := s.users[user]; named {
		return roles, true, false
	}
	return set{Read}, true, false // the file has got this user since
}
