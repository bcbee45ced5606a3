package access

import (
	"fmt"
	"net"
)

// Door is a way in, and what is open there to those who prove nothing.
type Door struct {
	Guard *Guard
	// Open is the role that needs no credential here, as long as none is
	// configured for it: over TCP to an address of the loopback, and with Sockets
	// over a unix socket too, whose file says who may connect.
	Open    Role
	Sockets bool
	// Always keeps Open open whatever is configured and wherever it comes from: a
	// listener that trusts nobody has nothing to ask for. What is sent as a
	// credential is not looked at, lest this be where one is guessed, and any
	// address will do as the Host.
	Always bool
}

// caller tells who asks, as far as this door wants to know.
func (d Door) caller(local net.Addr, authorization []string) Caller {
	if d.Always {
		authorization = nil
	}
	return d.Guard.Caller(local, authorization)
}

// Refusal is why a request is not let in. It holds nothing of what was sent.
type Refusal struct {
	// Unauthenticated is a request without a credential, or with one that is
	// none: 401. Else a credential that is good for something else, or a request
	// that a web page may have sent: 403.
	Unauthenticated bool
	// Later is a password that could not be checked now, which says nothing of
	// whether it is right: 429, to be repeated in a second.
	Later bool
	Role  Role // what is missing; empty where it is no role
	text  string
}

func (r *Refusal) Error() string { return r.text }

// Check lets a caller do what needs the role, or says why not.
func (d Door) Check(c Caller, need Role) *Refusal {
	switch {
	case need == Anyone:
		return nil
	case c.later:
		return &Refusal{Later: true, Role: need, text: "too many passwords are being checked: try again in a second"}
	case c.wrong:
		return &Refusal{Unauthenticated: true, Role: need, text: fmt.Sprintf("the role %s is needed, and the credential that was sent is not valid", need)}
	case need != "" && (c.roles.has(need) || need == d.Open && d.open(c)):
		return nil
	case c.proven:
		return &Refusal{Role: need, text: fmt.Sprintf("the role %s is needed; %s has %s", need, c.who, c.roles)}
	case !d.Guard.OverTCP(need):
		return &Refusal{Unauthenticated: true, Role: need, text: fmt.Sprintf("the role %s is needed, and no token has it: ask over the API socket, or give it to a token under access", need)}
	}
	return &Refusal{Unauthenticated: true, Role: need, text: fmt.Sprintf("the role %s is needed: send a token that has it, as Authorization: Bearer TOKEN", need)}
}

// open says whether the door's open role is open to this caller.
func (d Door) open(c Caller) bool {
	switch {
	case d.Always:
		return true
	case d.Guard.state().asked.has(d.Open):
		return false
	}
	return c.here || d.Sockets && c.socket
}
