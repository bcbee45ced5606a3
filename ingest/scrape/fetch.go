package scrape

import (
	"net/http"
	"strconv"

	"github.com/wattloop/wattloop/internal/fetch"
)

// accepts are the formats that are read, the best first. Exporters that speak a
// text format answer in one; protobuf brings native histograms.
const accepts = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6," +
	"application/openmetrics-text;version=0.0.1;q=0.5," +
	"text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4," +
	"text/plain;version=0.0.4;q=0.3," +
	"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.2," +
	"*/*;q=0.1"

// newPage is the page of one target.
func newPage(t *Target, o *Options) *fetch.Page {
	return &fetch.Page{
		URL: t.URL, Timeout: t.Timeout, Limit: t.BodyLimit, LimitKey: "body_size_limit",
		Header: http.Header{
			"Accept":                              {accepts},
			"User-Agent":                          {o.Agent},
			"X-Prometheus-Scrape-Timeout-Seconds": {strconv.FormatFloat(t.Timeout.Seconds(), 'f', -1, 64)},
		},
		Client: fetch.ClientOf(t.HTTP, o.dial),
	}
}
