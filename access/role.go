// Package access says who may do what: roles, the credentials that prove them,
// and the door that a request comes in by. It refuses what no credential allows,
// and knows nothing of what lies behind the door.
package access

import (
	"fmt"
	"slices"
	"strings"
)

// Role is what somebody may do. A credential has exactly the roles that it is
// given: none of them includes another.
type Role string

const (
	Push    Role = "push"    // send telemetry
	Read    Role = "read"    // query, status, metrics
	Admin   Role = "admin"   // reload, channels
	Actuate Role = "actuate" // move hardware by hand
	// Anyone is for what needs no role, such as the health of the process. The
	// zero Role is nobody's: what declares none is shut.
	Anyone Role = "anyone"
)

// Roles are those that a credential can have.
func Roles() []Role { return []Role{Push, Read, Admin, Actuate} }

// ParseRole reads the name of a role that a credential can have.
func ParseRole(s string) (Role, error) {
	if r := Role(s); slices.Contains(Roles(), r) {
		return r, nil
	}
	return "", fmt.Errorf("role %q: want push, read, admin or actuate", s)
}

// set is some of the four roles.
type set []Role

func (s set) has(r Role) bool { return slices.Contains(s, r) }

func (s set) plus(o set) set {
	for _, r := range o {
		if !s.has(r) {
			s = append(slices.Clip(s), r)
		}
	}
	return s
}

func (s set) String() string {
	if len(s) == 0 {
		return "no role"
	}
	names := make([]string, len(s))
	for i, r := range s {
		names[i] = string(r)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
