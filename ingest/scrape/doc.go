// Package scrape reads the pages of Prometheus exporters: it fetches each target
// of a list at its interval, reads the page with Prometheus's own parsers, and
// appends what is on it to the store, with the marks by which Prometheus says that
// a target is up and that a series has ended. It refuses names that are the
// program's own, and values by which an exporter says that it has none.
package scrape
