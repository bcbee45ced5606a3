// Package relay hands telemetry on to an upstream OTLP endpoint over gRPC. Each
// plane, the platform's own and that of the workloads, has a queue on disk, a
// connection and a sender of its own, so that neither can delay the other. It
// knows nothing of what the requests say: the bytes go on as they came.
//
// It never sends a workload's telemetry anywhere but to the one upstream: what
// finds no way there waits in the queue, and what finds no room is refused and
// counted.
package relay
