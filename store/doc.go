// Package store keeps the samples and answers queries: Prometheus's TSDB and
// PromQL engine, embedded. It says when a sample is durable, stops taking
// samples after a failed write until it has been reopened, and adds four
// functions to PromQL: covered_rate, covered_increase, and covered_newest and
// covered_moving, by which rules judge what the first one says.
//
// It knows nothing of OTLP, rules or hardware, and nothing else of this
// program imports the TSDB.
package store
