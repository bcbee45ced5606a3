package api

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// protect refuses what a page of another origin sends through an operator's
// browser: a Host that is no loopback name (DNS rebinding), and a request that
// comes from another origin, reads included. On the unix socket the Host says
// nothing: no browser gets there.
func protect(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !onSocket(r) && !localHost(r.Host) {
			http.Error(w, "host "+quoted(r.Host)+" is not a name of this machine's loopback", http.StatusForbidden)
			return
		}
		if err := cross.Check(r); err != nil || !sameOrigin(r) {
			http.Error(w, "cross-origin requests are refused", http.StatusForbidden)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		next.ServeHTTP(w, r)
	})
}

func onSocket(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && addr.Network() == "unix"
}

// localHost takes the loopback's names and addresses, with or without a port.
func localHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(trimBrackets(host))
	return err == nil && ip.IsLoopback()
}

func trimBrackets(s string) string {
	if len(s) > 1 && s[0] == '[' && s[len(s)-1] == ']' {
		return s[1 : len(s)-1]
	}
	return s
}

// sameOrigin holds for reads too, which CrossOriginProtection lets pass: a
// browser always names the origin of a cross-origin fetch.
func sameOrigin(r *http.Request) bool {
	o := r.Header.Get("Origin")
	if o == "" {
		site := r.Header.Get("Sec-Fetch-Site")
		return site == "" || site == "same-origin" || site == "none"
	}
	return strings.EqualFold(o, "http://"+r.Host) || strings.EqualFold(o, "https://"+r.Host)
}

// quoted shows a header's text without letting it be long or unprintable.
func quoted(s string) string {
	const most = 80
	out := make([]rune, 0, most)
	for _, c := range s {
		if len(out) == most {
			break
		}
		if c < ' ' || c > '~' {
			c = '?'
		}
		out = append(out, c)
	}
	return `"` + string(out) + `"`
}
