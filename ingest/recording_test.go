package ingest_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/wattloop/wattloop/ingest"
)

// read returns what a recording delivers, as text, and how it ends.
func read(data string) (bodies []string, err error) {
	err = ingest.ReadRecording(iotest.OneByteReader(strings.NewReader(data)), "rec", func(q ingest.Request) error {
		bodies = append(bodies, string(q.Body))
		return nil
	})
	return bodies, err
}

func TestRecordingFormats(t *testing.T) {
	// Two small requests as protobuf, and one of 123 bytes, whose varint length
	// is '{'.
	small, other := "\x0a\x00", "\x0a\x02\x12\x00"
	brace := "\x0a\x79\x12\x77" + strings.Repeat("\x1a\x00", 59) + "\x00"
	fixed := func(s string) string {
		return string(binary.BigEndian.AppendUint32(nil, uint32(len(s)))) + s
	}
	f := func(name, data string, want []string, wantErr string) {
		t.Helper()
		got, err := read(data)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", name, diff)
		}
		if text := fmt.Sprint(err); text != wantErr {
			t.Errorf("%s: error %q; want %q", name, text, wantErr)
		}
	}
	const none = "<nil>"
	f("empty", "", nil, none)
	f("blank", " \r\n\n", nil, none)
	f("mark alone", "\xef\xbb\xbf", nil, none)
	f("lines", "{\"a\":1}\n{}\n", []string{`{"a":1}`, `{}`}, none)
	f("no newline at the end", "{}\n{}", []string{`{}`, `{}`}, none)
	f("mark, CRLF and blank lines", "\xef\xbb\xbf{}\r\n\r\n{}\r\n", []string{`{}`, `{}`}, none)
	f("printed over lines", "{\n \"a\": [\n  1\n ]\n}\n{\n}\n", []string{"{\n \"a\": [\n  1\n ]\n}", "{\n}"}, none)
	f("one after another", "{}{}", []string{`{}`, `{}`}, none)
	f("tab before a document", "\t{}", []string{`{}`}, none)

	f("varint", "\x02"+small+"\x04"+other, []string{small, other}, none)
	f("varint of two bytes", "\x82\x00"+small, []string{small}, none)
	f("varint that is a brace", "{"+brace, []string{brace}, none)
	f("varint that is a newline", "\n\x0a\x08\x12\x06\x1a\x04abcd\x02"+small, []string{"\x0a\x08\x12\x06\x1a\x04abcd", small}, none)
	f("four bytes", fixed(small)+fixed(other), []string{small, other}, none)
	f("four bytes, an empty one later", fixed(small)+fixed("")+fixed(other), []string{small, "", other}, none)

	f("cut line", "{}\n{\"a\":", []string{`{}`},
		"rec:2: request 2 is cut off: the file ends inside it; the 1 before it are whole")
	f("cut in a string", "\n{\"a", nil, "rec:2: request 1 is cut off: the file ends inside it; the 0 before it are whole")
	f("cut in the mark", "\xef\xbb", nil, "rec:1: request 1 is cut off: the file ends inside it; the 0 before it are whole")
	f("cut varint", "\x02"+small+"\x84", []string{small},
		"rec: byte 3: request 2 is cut off: the file ends inside it; the 1 before it are whole")
	f("cut message", "\x02"+small+"\x04\x0a", []string{small},
		"rec: byte 3: request 2 is cut off: the file ends inside it; the 1 before it are whole")
	f("cut right after a length", "\x02"+small+"\x04", []string{small},
		"rec: byte 3: request 2 is cut off: the file ends inside it; the 1 before it are whole")
	f("cut four bytes", fixed(small)+"\x00\x00", []string{small},
		"rec: byte 6: request 2 is cut off: the file ends inside it; the 1 before it are whole")

	f("words", "hello\n", nil, "rec: no recording: want OTLP requests as JSON documents or as length-delimited protobuf")
	f("a list", "[{}]", nil, "rec: no recording: want OTLP requests as JSON documents or as length-delimited protobuf")
	f("gzip", "\x1f\x8b\x08\x00", nil, "rec: compressed: decompress it first, with gzip -d or zstd -d")
	f("zstd", "\x28\xb5\x2f\xfd", nil, "rec: compressed: decompress it first, with gzip -d or zstd -d")
	f("a number between", "{}\n\n7\n{}\n", []string{`{}`}, "rec:3: request 2: want a JSON object")
	f("not JSON, far in", "{}\n\n{\n\"a\":1,\n\"b\" 2}\n", []string{`{}`},
		"rec:5: request 2: invalid character '2' after object key")
	f("zeros at the end", "{}\n\x00\x00", []string{`{}`},
		"rec:2: request 2: invalid character '\\x00' looking for beginning of value")
	f("a length that lies", "\x02"+small+"\xff\xff\xff\xff\x0f", []string{small},
		"rec: byte 3: request 2: length 4294967295, want at most 67108864: the recording is damaged")
	f("a length without end", "\x02"+small+strings.Repeat("\xff", 11), []string{small},
		"rec: byte 3: length of request 2: no end within ten bytes: the recording is damaged")
}

// C71: a last line without its newline is a whole document, a cut one is an
// error that names it, and neither hides what came before.
func TestRecordingTruncatedC71(t *testing.T) {
	f := func(file string, want int, cut *ingest.TruncatedError) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join("../testdata/cases/C71-replay-truncated-file", file))
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(string(data))
		if len(got) != want {
			t.Errorf("%s: %d documents; want %d", file, len(got), want)
		}
		if cut == nil {
			if err != nil {
				t.Errorf("%s: %v", file, err)
			}
			return
		}
		truncated, ok := errors.AsType[*ingest.TruncatedError](err)
		if !ok {
			t.Fatalf("%s: error %v; want a TruncatedError", file, err)
		}
		if diff := cmp.Diff(cut, truncated); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", file, diff)
		}
	}
	f("no-newline.jsonl", 5, nil)
	f("cut.jsonl", 4, &ingest.TruncatedError{Name: "rec", Number: 5, Line: 5, Offset: 2372})
	f("bom-crlf-blank.jsonl", 5, nil)
}

// C71: the same files into the store. Rates are Prometheus's own, then covered
// ones, which a young series does not pull down.
func TestRecordingStoredC71(t *testing.T) {
	f := func(file string, samples, newest int, energy float64) *rig {
		t.Helper()
		r := newRig(t, func(o *ingest.Options) { o.NoTimeGate = true })
		_ = ingest.ReadRecording(bytes.NewReader(caseFile(t, "C71-replay-truncated-file/"+file)), file, func(q ingest.Request) error {
			r.rejected(r.postJSON(q.Body), "")
			return nil
		})
		r.check(`count_over_time(hw_energy_joules_total[1h])`, 240, samples)
		r.check(`hw_energy_joules_total`, 240, energy)
		r.check(`timestamp(hw_energy_joules_total)`, 240, t0+newest)
		return r
	}
	whole := f("no-newline.jsonl", 5, 240, 60000)
	whole.check(nodePower, 240, 200)
	whole.check(strings.ReplaceAll(nodePower, "rate(", "covered_rate("), 240, 250)
	f("cut.jsonl", 4, 180, 45000)
	f("bom-crlf-blank.jsonl", 5, 240, 60000)
}

func TestRecordingPlaces(t *testing.T) {
	var got []ingest.Request
	data := "\xef\xbb\xbf{}\r\n\r\n {\n}\n\n{}"
	err := ingest.ReadRecording(strings.NewReader(data), "rec", func(q ingest.Request) error {
		if !bytes.HasPrefix([]byte(data)[q.Offset:], q.Body) {
			t.Errorf("request %d is not at byte %d", q.Number, q.Offset)
		}
		q.Body = nil
		got = append(got, q)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []ingest.Request{
		{JSON: true, Number: 1, Line: 1, Offset: 3},
		{JSON: true, Number: 2, Line: 3, Offset: 10},
		{JSON: true, Number: 3, Line: 6, Offset: 15},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRecordingErrors(t *testing.T) {
	stop := errors.New("stop")
	calls := 0
	err := ingest.ReadRecording(strings.NewReader("{}\n{}\n{}\n"), "rec", func(q ingest.Request) error {
		if calls++; calls == 2 {
			return stop
		}
		return nil
	})
	if calls != 2 || !errors.Is(err, stop) || err.Error() != "rec:2: stop" {
		t.Errorf("%d calls, error %v; want 2 and rec:2: stop", calls, err)
	}
	broken := errors.New("broken disk")
	for _, data := range []string{"", "{", "{}\n", "\x02", "\x02\x0a\x00\x04", "\x02\x0a\x00\x04\x0a", "\x00\x00"} {
		r := io.MultiReader(strings.NewReader(data), iotest.ErrReader(broken))
		if err := ingest.ReadRecording(r, "rec", func(ingest.Request) error { return nil }); !errors.Is(err, broken) {
			t.Errorf("%q and then an error: %v; want the reader's error", data, err)
		}
	}
}

// A recording cut anywhere delivers exactly the requests that are whole, and
// says so unless it was cut between two (C71).
func TestRecordingCutAnywhere(t *testing.T) {
	ingest.CheckCases(t, 10_000, func(t *rapid.T) {
		w := rapid.SampledFrom([]string{"json", "varint", "fixed"}).Draw(t, "format")
		var data []byte
		var ends []int // of each request
		if w == "json" && rapid.Bool().Draw(t, "mark") {
			data = append(data, "\xef\xbb\xbf"...)
		}
		mark := len(data)
		for range rapid.IntRange(1, 6).Draw(t, "requests") {
			var body []byte
			if w == "json" {
				data = append(data, rapid.SampledFrom([]string{"", "\n", "\r\n", " \n\t"}).Draw(t, "between")...)
				value := map[string]string{rapid.String().Draw(t, "key"): rapid.String().Draw(t, "value")}
				body, _ = json.MarshalIndent(value, "", rapid.SampledFrom([]string{"", " "}).Draw(t, "indent"))
			} else {
				body = append([]byte{requestTag}, rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "body")...)
			}
			switch w {
			case "varint":
				data = binary.AppendUvarint(data, uint64(len(body)))
			case "fixed":
				data = binary.BigEndian.AppendUint32(data, uint32(len(body)))
			}
			data = append(data, body...)
			ends = append(ends, len(data))
		}
		cut := rapid.IntRange(0, len(data)).Draw(t, "cut")
		whole, between := 0, cut == 0 || cut == mark
		for _, end := range ends {
			if end <= cut {
				whole++
			}
			between = between || end == cut
		}
		if w != "json" && strings.Trim(string(data[:cut]), "\n\r\t ") == "" {
			between = true // a stump of a length or two that are blanks: an empty text
		}
		if w == "json" && !between {
			last := 0
			if whole > 0 {
				last = ends[whole-1]
			}
			between = strings.Trim(string(data[last:cut]), "\n\r\t ") == "" ||
				whole == 0 && strings.Trim(strings.TrimPrefix(string(data[:cut]), "\xef\xbb\xbf"), "\n\r\t ") == ""
		}
		got, err := read(string(data[:cut]))
		if len(got) != whole {
			t.Fatalf("cut at %d of %d: %d requests, error %v; want %d", cut, len(data), len(got), err, whole)
		}
		_, truncated := errors.AsType[*ingest.TruncatedError](err)
		if between && err != nil || !between && !truncated {
			t.Fatalf("cut at %d of %d: error %v; between two requests: %v", cut, len(data), err, between)
		}
	})
}

const requestTag = 0x0a

// FuzzReadRecording holds what is true of any bytes: requests come in order from
// where they stand, and a JSON one is an object.
func FuzzReadRecording(f *testing.F) {
	for _, seed := range []string{
		"", "{}\n{}\r\n", "\xef\xbb\xbf{}", "{\n}", "{\"a\":", "\x02\x0a\x00\x02\x0a", "\x00\x00\x00\x02\x0a\x00", "{\x0a\x79\x12",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		last, end := 0, int64(0)
		err := ingest.ReadRecording(bytes.NewReader(data), "rec", func(q ingest.Request) error {
			if q.Number != last+1 || q.Offset < end {
				t.Fatalf("request %d at byte %d after request %d, which ends at %d", q.Number, q.Offset, last, end)
			}
			at := data[q.Offset:]
			if q.JSON {
				var object map[string]json.RawMessage
				if !bytes.HasPrefix(at, q.Body) || json.Unmarshal(q.Body, &object) != nil {
					t.Fatalf("request %d is no object at byte %d", q.Number, q.Offset)
				}
				if want := 1 + bytes.Count(data[:q.Offset], []byte("\n")); q.Line != want {
					t.Fatalf("request %d is on line %d; want %d", q.Number, q.Line, want)
				}
			} else if !bytes.Contains(at, q.Body) {
				t.Fatalf("request %d is not in the recording at byte %d", q.Number, q.Offset)
			}
			last, end = q.Number, q.Offset+int64(len(q.Body))
			return nil
		})
		if truncated, ok := errors.AsType[*ingest.TruncatedError](err); ok && truncated.Number != last+1 {
			t.Fatalf("request %d is cut, and %d were whole", truncated.Number, last)
		}
	})
}
