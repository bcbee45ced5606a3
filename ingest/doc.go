// Package ingest takes OTLP metrics in and hands stamped samples to a store.
// One request is walked as wire bytes, each point is translated to a series and
// a number, and everything that is not stored is counted with a reason. It
// evaluates nothing, keeps no history, and never acknowledges a request before
// its samples are durable.
package ingest
