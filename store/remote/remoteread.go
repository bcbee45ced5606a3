package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"google.golang.org/protobuf/encoding/protowire"
)

// errNoRemoteRead says that the server has no remote read, or not in a form that
// is read here.
var errNoRemoteRead = errors.New("no remote read")

// remoteRead asks for the chunks of the series, as a TSDB has them: every sample
// with all its bits, staleness markers and native histograms too.
func (c *Client) remoteRead(ctx context.Context, q question) (*answer, error) {
	body := snappy.Encode(nil, appendReadRequest(nil, q))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.JoinPath("api/v1/read").String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("X-Prometheus-Remote-Read-Version", "0.1.0")
	resp, err := c.do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusNotImplemented, http.StatusGone:
		return nil, errNoRemoteRead
	case http.StatusBadRequest:
		// Who does not know the path may call it a bad request, as VictoriaMetrics does.
		if text := refusal(resp); strings.Contains(text, "unsupported path") {
			return nil, errNoRemoteRead
		} else {
			return nil, &statusError{resp.StatusCode, text}
		}
	default:
		return nil, &statusError{resp.StatusCode, refusal(resp)}
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/x-streamed-protobuf") {
		return nil, errNoRemoteRead
	}
	a := &answer{start: q.start, end: q.end}
	if err := c.readFrames(c.counted(resp.Body), a); err != nil {
		return nil, err
	}
	a.sort()
	return a, nil
}

// appendReadRequest writes a ReadRequest of one query that takes streamed chunks
// alone.
func appendReadRequest(b []byte, q question) []byte {
	var query []byte
	query = protowire.AppendVarint(protowire.AppendTag(query, 1, protowire.VarintType), uint64(q.start))
	query = protowire.AppendVarint(protowire.AppendTag(query, 2, protowire.VarintType), uint64(q.end))
	for _, m := range q.matchers {
		var w []byte
		if m.Type != labels.MatchEqual { // 0; the numbers are those of labels
			w = protowire.AppendVarint(protowire.AppendTag(w, 1, protowire.VarintType), uint64(m.Type))
		}
		w = protowire.AppendString(protowire.AppendTag(w, 2, protowire.BytesType), m.Name)
		w = protowire.AppendString(protowire.AppendTag(w, 3, protowire.BytesType), m.Value)
		query = protowire.AppendBytes(protowire.AppendTag(query, 3, protowire.BytesType), w)
	}
	b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), query)
	return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), 1) // STREAMED_XOR_CHUNKS
}

// maxFrame bounds one frame of a stream; servers make them of 1 MiB.
const maxFrame = 16 << 20

// readFrames reads a stream of ChunkedReadResponse: each frame is its length as a
// varint, its CRC-32C in four bytes, big-endian, and the message. A series may go
// on in the next frame.
func (c *Client) readFrames(r io.Reader, a *answer) error {
	in := bufio.NewReaderSize(r, 64<<10)
	sums := crc32.MakeTable(crc32.Castagnoli)
	for {
		n, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("remote read: %w", err)
		}
		if n > maxFrame {
			return fmt.Errorf("remote read: a frame of %d bytes, the most is %d", n, maxFrame)
		}
		frame := make([]byte, 4+n) // the chunks lie in it
		if _, err := io.ReadFull(in, frame); err != nil {
			return fmt.Errorf("remote read: cut short: %w", err)
		}
		if crc32.Checksum(frame[4:], sums) != binary.BigEndian.Uint32(frame) {
			return errors.New("remote read: a frame is not what was sent")
		}
		if err := a.takeFrame(frame[4:]); err != nil {
			return fmt.Errorf("remote read: %w", err)
		}
	}
}

func (a *answer) takeFrame(b []byte) error {
	return each(b, func(num protowire.Number, f []byte, _ uint64) error {
		if num != 1 {
			return nil
		}
		s, err := readSeries(f)
		if err != nil {
			return err
		}
		if n := len(a.series); n > 0 && labels.Equal(a.series[n-1].labels, s.labels) {
			a.series[n-1].chunks = append(a.series[n-1].chunks, s.chunks...)
			return nil
		}
		a.series = append(a.series, s)
		return nil
	})
}

// readSeries reads a ChunkedSeries.
func readSeries(b []byte) (series, error) {
	var s series
	ls := labels.NewScratchBuilder(16)
	err := each(b, func(num protowire.Number, f []byte, _ uint64) error {
		switch num {
		case 1:
			var name, value string
			err := each(f, func(num protowire.Number, f []byte, _ uint64) error {
				switch num {
				case 1:
					name = string(f)
				case 2:
					value = string(f)
				}
				return nil
			})
			ls.Add(name, value)
			return err
		case 2:
			c, err := readChunk(f)
			s.chunks = append(s.chunks, c)
			return err
		}
		return nil
	})
	ls.Sort()
	s.labels = ls.Labels()
	return s, err
}

func readChunk(b []byte) (chunkenc.Chunk, error) {
	var enc uint64
	var data []byte
	err := each(b, func(num protowire.Number, f []byte, v uint64) error {
		switch num {
		case 3:
			enc = v
		case 4:
			data = f
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if enc > 0xff || len(data) < 3 {
		return nil, fmt.Errorf("a chunk of encoding %d and %d bytes", enc, len(data))
	}
	return chunkenc.FromData(chunkenc.Encoding(enc), data)
}

// each calls f for the fields of a message, with the bytes or the number.
func each(b []byte, f func(num protowire.Number, bytes []byte, v uint64) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var data []byte
		var v uint64
		switch typ {
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := f(num, data, v); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
