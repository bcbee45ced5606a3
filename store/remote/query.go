package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// lookback is for how long a sample answers, here and on the server.
const lookback = 5 * time.Minute

// query asks for the samples of a selector with a range at one instant, which
// every server of this API answers with the samples as they are.
//
// VictoriaMetrics shows a staleness marker as NaN, and keeps no other NaN.
// Others leave the markers out: there a series that is in the range and not in
// the answer to the selector alone has ended after its last sample, and a marker
// is put there.
func (c *Client) query(ctx context.Context, q question) (*answer, error) {
	expr := selector(q.matchers)
	ranged := fmt.Sprintf("%s[%dms]", expr, q.end-q.start+1) // the range is open on the left
	got, victoria, err := c.instant(ctx, ranged, q.end)
	if err != nil {
		return nil, err
	}
	a := &answer{start: q.start, end: q.end}
	var live map[string]bool
	if !victoria && slices.ContainsFunc(got, func(s wireSeries) bool { return s.recent(q.end) }) {
		now, _, err := c.instant(ctx, expr, q.end)
		if err != nil {
			return nil, err
		}
		live = map[string]bool{}
		for _, s := range now {
			live[s.Metric.String()] = true
		}
	}
	for _, s := range got {
		if len(s.Histograms) > 0 {
			return nil, fmt.Errorf("%s has native histograms: they are read by remote read alone, which the server does not have", s.Metric)
		}
		ended := live != nil && s.recent(q.end) && !live[s.Metric.String()]
		chunk, err := s.chunk(victoria, ended, q.end)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Metric, err)
		}
		a.series = append(a.series, series{s.Metric, []chunkenc.Chunk{chunk}})
	}
	a.sort()
	return a, nil
}

// selector writes matchers as PromQL.
func selector(ms []*labels.Matcher) string {
	all := make([]string, len(ms))
	for i, m := range ms {
		name := m.Name
		if !plainLabel(name) {
			name = strconv.Quote(name)
		}
		all[i] = name + m.Type.String() + strconv.Quote(m.Value)
	}
	return "{" + strings.Join(all, ",") + "}"
}

// plainLabel is a label that every server takes without quotes.
func plainLabel(s string) bool {
	for i, r := range s {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

// wireSeries is one series of an answer of the HTTP API.
type wireSeries struct {
	Metric     labels.Labels   `json:"metric"`
	Values     []point         `json:"values"`
	Histograms json.RawMessage `json:"histograms"`
}

// recent says that the series' last sample could still answer at the instant.
func (s *wireSeries) recent(end int64) bool {
	return len(s.Values) > 0 && end-s.Values[len(s.Values)-1].t < lookback.Milliseconds()
}

// chunk holds the values of a series as a TSDB would. ended says that a marker
// follows the last one.
func (s *wireSeries) chunk(victoria, ended bool, end int64) (chunkenc.Chunk, error) {
	c := chunkenc.NewXORChunk()
	app, err := c.Appender()
	if err != nil {
		return nil, err
	}
	last := int64(math.MinInt64)
	for _, p := range s.Values {
		if p.t <= last {
			continue
		}
		if last = p.t; victoria && math.IsNaN(p.v) {
			p.v = math.Float64frombits(value.StaleNaN)
		}
		app.Append(0, p.t, p.v)
	}
	if ended && last < end {
		app.Append(0, last+1, math.Float64frombits(value.StaleNaN))
	}
	return c, nil
}

// point is [seconds, "value"].
type point struct {
	t int64
	v float64
}

func (p *point) UnmarshalJSON(b []byte) error {
	var seconds float64
	var text string
	if err := json.Unmarshal(b, &[2]any{&seconds, &text}); err != nil {
		return err
	}
	v, err := strconv.ParseFloat(text, 64)
	p.t, p.v = int64(math.Round(seconds*1000)), v
	return err
}

// instant asks for an expression at an instant, and says whether it is
// VictoriaMetrics that answered.
func (c *Client) instant(ctx context.Context, expr string, ts int64) ([]wireSeries, bool, error) {
	form := url.Values{"query": {expr}, "time": {strconv.FormatFloat(float64(ts)/1000, 'f', 3, 64)}}
	// VictoriaMetrics must neither round the instant nor answer from its cache.
	form.Set("nocache", "1")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.JoinPath("api/v1/query").String(), strings.NewReader(form.Encode()))
	if err != nil {
		return nil, false, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.do(req)
	if err != nil {
		return nil, false, err
	}
	defer resp.Body.Close()
	victoria := resp.Header.Get("X-Server-Hostname") != ""
	if resp.StatusCode != http.StatusOK {
		return nil, victoria, &statusError{resp.StatusCode, said(refusal(resp))}
	}
	var a struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Result []wireSeries `json:"result"`
		} `json:"data"`
		IsPartial bool     `json:"isPartial"`
		Warnings  []string `json:"warnings"`
	}
	body := c.counted(resp.Body)
	if err := json.NewDecoder(body).Decode(&a); err != nil {
		return nil, victoria, fmt.Errorf("the answer is no JSON of this API: %w", err)
	}
	if _, err := io.Copy(io.Discard, body); err != nil {
		return nil, victoria, err
	}
	switch {
	case a.Status != "success":
		return nil, victoria, errors.New(clip(a.Error))
	case a.IsPartial || len(a.Warnings) > 0:
		// Part of the data is no basis to act on.
		return nil, victoria, fmt.Errorf("the answer is partial: %s", clip(strings.Join(a.Warnings, "; ")))
	}
	return a.Data.Result, victoria, nil
}

// said is the error of an answer of the API, or the whole of another answer.
func said(body string) string {
	var a struct {
		Error string `json:"error"`
	}
	if json.Unmarshal([]byte(body), &a) == nil && a.Error != "" {
		return clip(a.Error)
	}
	return body
}
