package access

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// What a web page may send through the browser of somebody at this machine is
// refused before anything else: a Host that is not ours, which is how a name is
// rebound (DNS rebinding), and whatever comes from another origin.

// host refuses a Host that this door does not go by. On a unix socket it says
// nothing: no browser gets there. A token proves that no page sent the request.
func (s *state) host(c Caller, host string, local net.Addr) *Refusal {
	if c.socket || c.token || LoopbackName(host) || ownAddress(host, local) || s.named(host) {
		return nil
	}
	return &Refusal{text: "the host " + quoted(host) + " is neither this machine's loopback nor in web.hosts: name it there, or send a token"}
}

// host is the state's, but that where nobody is asked any address will do: an
// address translation may lie before the door, and a rebound name is a name.
func (d Door) host(c Caller, host string, local net.Addr) *Refusal {
	if !d.Always {
		return d.Guard.state().host(c, host, local)
	}
	if _, err := netip.ParseAddr(hostOf(host)); err == nil || d.Guard.state().host(c, host, local) == nil {
		return nil
	}
	return &Refusal{text: "the host " + quoted(host) + " is neither an address nor in web.hosts: ask by an address, or name it there"}
}

func (s *state) named(hostport string) bool {
	host := hostOf(hostport)
	return slices.ContainsFunc(s.hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// hostOf is a Host without its port and brackets.
func hostOf(hostport string) string {
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		return h
	}
	if n := len(hostport); n > 1 && hostport[0] == '[' && hostport[n-1] == ']' {
		return hostport[1 : n-1]
	}
	return hostport
}

// LoopbackName takes the loopback's names and addresses, with or without a port.
func LoopbackName(hostport string) bool {
	host := hostOf(hostport)
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// ownAddress takes the very address that a connection came to, which may lie
// outside the loopback: no name was resolved, so none was rebound.
func ownAddress(hostport string, local net.Addr) bool {
	tcp, ok := local.(*net.TCPAddr)
	if !ok {
		return false
	}
	ip, err := netip.ParseAddr(hostOf(hostport))
	own, isIP := netip.AddrFromSlice(tcp.IP)
	return err == nil && isIP && ip.WithZone("").Unmap() == own.Unmap()
}

var crossOrigin = http.NewCrossOriginProtection()

// foreign is a request that a page of another origin sent, reads included, which
// CrossOriginProtection lets pass: a browser always names the origin of a
// cross-origin fetch.
func foreign(r *http.Request) bool {
	if crossOrigin.Check(r) != nil {
		return true
	}
	o := r.Header.Get("Origin")
	if o == "" {
		site := r.Header.Get("Sec-Fetch-Site")
		return site != "" && site != "same-origin" && site != "none"
	}
	if strings.EqualFold(o, "https://"+r.Host) {
		return false
	}
	return r.TLS != nil || !strings.EqualFold(o, "http://"+r.Host)
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
