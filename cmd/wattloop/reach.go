package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/wattloop/wattloop/access"
	"github.com/wattloop/wattloop/access/webfile"
)

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
