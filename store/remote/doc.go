// Package remote is the way out of one machine. A Client reads samples from a
// Prometheus-compatible engine (Prometheus, Mimir, Thanos, VictoriaMetrics), so
// that the PromQL of this process runs over them as it does over its own store.
// A Writer sends what the store commits on by Remote Write 2.0.
//
// It never answers from what it read at an earlier instant, and shows no
// credential in any message.
package remote
