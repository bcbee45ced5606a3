package store

import (
	"errors"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// outOfOrderWriteFailed counts the writes to the out-of-order log that failed.
// The TSDB answers nil to such a commit, and this count is the only trace.
const outOfOrderWriteFailed = "prometheus_tsdb_out_of_order_wbl_writes_failed_total"

// registerer passes the TSDB's metrics on and can take all of them back, which
// the TSDB does not do when it closes. It watches one of them.
type registerer struct {
	inner prometheus.Registerer // may be nil

	mu       sync.Mutex
	all      []prometheus.Collector
	failures prometheus.Metric // outOfOrderWriteFailed
}

// Register implements prometheus.Registerer.
func (r *registerer) Register(c prometheus.Collector) error {
	if r.inner != nil {
		if err := r.inner.Register(c); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, c)
	if r.failures == nil && describes(c, outOfOrderWriteFailed) {
		r.failures = only(c)
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (r *registerer) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer.
func (r *registerer) Unregister(c prometheus.Collector) bool {
	return r.inner != nil && r.inner.Unregister(c)
}

// release takes back all that was registered.
func (r *registerer) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.all {
		r.Unregister(c)
	}
	r.all = nil
}

// failedWrites is how many writes to the out-of-order log have failed.
func (r *registerer) failedWrites() (float64, error) {
	r.mu.Lock()
	m := r.failures
	r.mu.Unlock()
	if m == nil {
		return 0, errors.New("BUG: the TSDB has no metric " + outOfOrderWriteFailed)
	}
	var now dto.Metric // every ack asks: gathering from a registry costs ten times as much
	if err := m.Write(&now); err != nil {
		return 0, err
	}
	return now.GetCounter().GetValue(), nil
}

// describes reports whether c has a metric of that name. A Desc tells its name
// in its string alone.
func describes(c prometheus.Collector, name string) bool {
	descs := make(chan *prometheus.Desc)
	go func() {
		c.Describe(descs)
		close(descs)
	}()
	found := false
	for d := range descs {
		found = found || strings.Contains(d.String(), `fqName: "`+name+`"`)
	}
	return found
}

// only is the one metric of a counter without labels.
func only(c prometheus.Collector) (m prometheus.Metric) {
	all := make(chan prometheus.Metric)
	go func() {
		c.Collect(all)
		close(all)
	}()
	for one := range all {
		m = one
	}
	return m
}
