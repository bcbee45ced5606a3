package ingest

import "unicode/utf8"

// levels are the messages of one signal's request, from the outside in.
type levels struct {
	signal                        Signal
	request, block, scope, record message
	json                          jsonType
	what                          string // its records
}

var (
	metricLevels = levels{SignalMetrics, msgRequest, msgResourceMetrics, msgScopeMetrics, msgMetric, jsonRequest, "metrics"}
	traceLevels  = levels{SignalTraces, msgTraceRequest, msgResourceSpans, msgScopeSpans, msgSpan, jsonTraceRequest, "spans"}
	logLevels    = levels{SignalLogs, msgLogsRequest, msgResourceLogs, msgScopeLogs, msgLogRecord, jsonLogsRequest, "log records"}
)

// maxRecords bounds the spans or log records of one request, as maxPoints does
// its points.
const maxRecords = 50_000

// records is what a scan has found.
type records struct {
	n        int // all of them
	invalid  int // those with a text that is not UTF-8
	beyond   int // those after maxRecords
	foreign  int // those of a node that the channel does not speak for
	away     bool
	messages int
}

// kept is how many go onward.
func (r *records) kept() int { return r.n - r.invalid - r.beyond - r.foreign }

// scanRecords looks at all of a trace or logs request before anything is made of
// it, and decides on each record.
func (s *stamper) scanRecords(l *levels, wire []byte) (records, error) {
	var r records
	err := s.scanLevel(&r, l, l.request, wire, 1)
	if err == nil && r.messages > 10_000+len(wire)/4 {
		// What is said in so few bytes is nothing: one attribute takes nine for two
		// messages.
		err = undecodable("%d messages in %d bytes: too many", r.messages, len(wire))
	}
	return r, err
}

func (s *stamper) scanLevel(r *records, l *levels, m message, b []byte, depth int) error {
	f := fields{b: b}
	for f.next() {
		c, known := schema[m][f.num]
		if !known {
			continue
		}
		if c.typ != f.typ {
			return undecodable("field %d has the wrong wire type", f.num)
		}
		var err error
		switch c.msg {
		case msgNone:
			if c.text && !utf8.Valid(f.data) {
				err = undecodable("a schema URL is not valid UTF-8")
			}
		case l.block, l.scope:
			r.messages++
			r.away = r.away && c.msg == l.scope || c.msg == l.block && s.foreign(f.data)
			err = s.scanLevel(r, l, c.msg, f.data, depth+1)
		default:
			err = s.scanWhole(r, l, c.msg, f.data, depth+1)
		}
		if err == nil && r.messages > maxMessages {
			err = undecodable("more than %d messages in one request", maxMessages)
		}
		if err != nil {
			return err
		}
	}
	if f.broken {
		return undecodable("a message is cut short or malformed")
	}
	return nil
}

// scanWhole looks at a resource, a scope or a record.
func (s *stamper) scanWhole(r *records, l *levels, m message, b []byte, depth int) error {
	n, invalid, err := scan(m, b, depth)
	r.messages += n
	if m != l.record {
		if err == nil && invalid {
			err = undecodable("a text of a resource or a scope is not valid UTF-8")
		}
		return err
	}
	r.n++
	var d decision
	switch {
	case r.n > maxRecords:
		r.beyond++
		d.act = actDrop
	case r.away:
		r.foreign++
		d.act = actDrop
	case invalid:
		r.invalid++
		d.act = actDrop
	}
	s.decisions = append(s.decisions, d)
	return err
}

// rewrite writes the request: on a workload channel stamped, else as it was but
// for the records, and the metrics of nodes, that were refused.
func (s *stamper) rewrite(l *levels, wire []byte) {
	f := fields{b: wire}
	for from := 0; f.next() && !s.over; from = len(wire) - len(f.b) {
		switch {
		case f.num == 1:
			s.block(l, f.data)
		case s.st == nil:
			s.out = append(s.out, wire[from:len(wire)-len(f.b)]...)
		}
	}
}

// block writes one resource and what is under it; a workload's that holds no
// record is left out.
func (s *stamper) block(l *levels, b []byte) {
	if s.st == nil && l.record == msgMetric {
		if !s.foreign(b) {
			s.close(s.copied(1, b))
		}
		return
	}
	at := s.open(1, len(b))
	added := s.added
	if s.st != nil {
		s.resource(b)
	}
	any := false
	f := fields{b: b}
	for from := 0; f.next(); from = len(b) - len(f.b) {
		switch raw := b[from : len(b)-len(f.b)]; {
		case f.num == 2:
			any = s.scope(l, f.data) || any
		case s.st == nil:
			s.out = append(s.out, raw...)
		case f.num != 1:
			s.field(l.block, &f, raw)
		}
	}
	if !any && (s.st != nil || s.foreign(b)) {
		s.cancel(at)
		s.added, s.over = added, false
		return
	}
	s.close(at)
}

// scope writes one scope and its records, and reports whether there were any.
func (s *stamper) scope(l *levels, b []byte) (any bool) {
	at := s.open(2, len(b))
	f := fields{b: b}
	for from := 0; f.next(); from = len(b) - len(f.b) {
		switch raw := b[from : len(b)-len(f.b)]; {
		case f.num == 2 && l.record == msgMetric:
			any = s.metric(f.data) || any
		case f.num == 2:
			any = s.record(l, &f, raw) || any
		case s.st == nil:
			s.out = append(s.out, raw...)
		default:
			s.field(l.scope, &f, raw)
		}
	}
	if s.st != nil && !any {
		s.cancel(at)
		return false
	}
	s.close(at)
	return any
}

// record writes a span or a log record that was not refused.
func (s *stamper) record(l *levels, f *fields, raw []byte) bool {
	if s.decision().act == actDrop {
		return false
	}
	if s.st == nil {
		s.out = append(s.out, raw...)
	} else {
		s.field(l.scope, f, raw)
	}
	return true
}

// decision is the one of the record or point that comes next.
func (s *stamper) decision() decision {
	if s.next >= len(s.decisions) {
		return decision{act: actDrop}
	}
	s.next++
	return s.decisions[s.next-1]
}
