package ingest

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// The messages of a refusal. They do not repeat what the sender named.
const (
	wrongHost   = "otlp: the host is not a name of this machine's loopback: send to 127.0.0.1 or localhost"
	wrongOrigin = "otlp: cross-origin requests are refused"
)

// protect refuses what a web page sends through the browser of somebody at this
// machine, by the rules of the API: a Host that is no name of the loopback (DNS
// rebinding), and every request from another origin. On a unix socket the Host
// says nothing: no browser gets there.
func (s *Server) protect(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case !onSocket(req) && !loopbackName(req.Host) && !ownAddress(req.Host, localAddr(req)):
			s.refuse(w, req, encodingOf(req.Header), answerForbidden, wrongHost)
		case cross.Check(req) != nil || !sameOrigin(req):
			s.refuse(w, req, encodingOf(req.Header), answerForbidden, wrongOrigin)
		default:
			next.ServeHTTP(w, req)
		}
	})
}

func onSocket(req *http.Request) bool {
	addr := localAddr(req)
	return addr != nil && addr.Network() == "unix"
}

func localAddr(req *http.Request) net.Addr {
	addr, _ := req.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return addr
}

// ownAddress takes the very address that a connection came to, which a channel
// may have outside the loopback: no name was resolved, so none was rebound.
func ownAddress(hostport string, local net.Addr) bool {
	tcp, ok := local.(*net.TCPAddr)
	if !ok {
		return false
	}
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	ip, err := netip.ParseAddr(host)
	own, isIP := netip.AddrFromSlice(tcp.IP)
	return err == nil && isIP && ip.WithZone("").Unmap() == own.Unmap()
}

// loopbackName takes the loopback's names and addresses, with or without a port.
func loopbackName(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	if n := len(host); n > 1 && host[0] == '[' && host[n-1] == ']' {
		host = host[1 : n-1]
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// sameOrigin holds also for what CrossOriginProtection lets pass as safe.
func sameOrigin(req *http.Request) bool {
	o := req.Header.Get("Origin")
	if o == "" {
		site := req.Header.Get("Sec-Fetch-Site")
		return site == "" || site == "same-origin" || site == "none"
	}
	return strings.EqualFold(o, "http://"+req.Host) || strings.EqualFold(o, "https://"+req.Host)
}

// loopbackCall is the same for the authority of a gRPC call.
func loopbackCall(ctx context.Context) bool {
	var local net.Addr
	if p, ok := peer.FromContext(ctx); ok {
		local = p.LocalAddr
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for _, a := range md.Get(":authority") {
		if !loopbackName(a) && !ownAddress(a, local) {
			return false
		}
	}
	return true
}
