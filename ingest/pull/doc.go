// Package pull reads a node's power from an HTTP endpoint that answers each GET
// with one OTLP JSON document, or with the legacy JSON: it fetches the document,
// works out a reading of it, and stores both. It refuses to show a reading of an
// earlier document as one of now: a document without a reading stores none.
package pull
