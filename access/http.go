package access

import (
	"context"
	"net"
	"net/http"
)

// Refuse answers a request that is not let in.
type Refuse func(http.ResponseWriter, *http.Request, *Refusal)

type callerKey struct{}

// HTTP is the door before next: what a web page may have sent is refused, who
// asks is found out once, and Need decides by it.
func (d Door) HTTP(next http.Handler, refuse Refuse) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		c := d.caller(local, r.Header.Values("Authorization"))
		if no := d.host(c, r.Host, local); no != nil {
			refuse(w, r, no)
			return
		}
		if foreign(r) {
			refuse(w, r, &Refusal{text: "cross-origin requests are refused"})
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	})
}

// Need lets those through to next who have the role. It stands behind HTTP.
func (d Door) Need(role Role, next http.Handler, refuse Refuse) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(callerKey{}).(Caller)
		no := d.Check(c, role)
		if no == nil {
			next.ServeHTTP(w, r)
			return
		}
		if no.Unauthenticated {
			d.challenge(w.Header())
		}
		refuse(w, r, no)
	})
}

// challenge says what would have been taken (RFC 9110, 11.6.1).
func (d Door) challenge(h http.Header) {
	h.Add("WWW-Authenticate", `Bearer realm="wattloop"`)
	if len(d.Guard.state().users) > 0 {
		h.Add("WWW-Authenticate", `Basic realm="wattloop", charset="UTF-8"`)
	}
}

// Call decides on a gRPC call: what needs the role, by the own end of its
// connection and the two things that its metadata say.
func (d Door) Call(need Role, local net.Addr, authority, authorization []string) *Refusal {
	c := d.caller(local, authorization)
	for _, a := range authority {
		if no := d.host(c, a, local); no != nil {
			return no
		}
	}
	return d.Check(c, need)
}
