package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/storage"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/wattloop/wattloop/ingest"
	"github.com/wattloop/wattloop/store"
)

// P5: what status and channels list show of a channel adds up to what was sent,
// also where the store took nothing at first.
func TestCountsOfAChannel(t *testing.T) {
	db, err := store.Open(store.Options{Path: t.TempDir(), Durability: "os"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	p := &parts{}
	p.reg = prometheus.NewRegistry()
	door := &shutDoor{Appendable: db, shut: true}
	now := time.Now()
	recv := ingest.NewReceiver(ingest.Options{Appendable: door, Queryable: db, Registerer: p.reg, Clock: func() time.Time { return now }})
	md := pmetric.NewMetrics()
	list := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	list.SetName("g")
	points := list.SetEmptyGauge().DataPoints()
	for _, at := range []time.Time{now, now.Add(time.Hour)} { // the second is refused for good
		points.AppendEmpty().SetTimestamp(pcommon.NewTimestampFromTime(at))
		points.At(points.Len() - 1).SetIntValue(1)
	}
	wire, err := pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := recv.Export(t.Context(), wire); err == nil {
			t.Fatal("the store took them")
		}
	}
	door.shut = false
	if _, err := recv.Export(t.Context(), wire); err != nil {
		t.Fatal(err)
	}
	if c := p.counts()["default"]; c.Accepted != 1 || c.Rejected != 1 {
		t.Errorf("%d accepted, %d rejected; want 1 of each", c.Accepted, c.Rejected)
	}
}

// shutDoor refuses every commit while it is shut.
type shutDoor struct {
	storage.Appendable
	shut bool
}

func (d *shutDoor) Appender(ctx context.Context) storage.Appender {
	return shutAppender{d.Appendable.Appender(ctx), d}
}

type shutAppender struct {
	storage.Appender
	d *shutDoor
}

func (a shutAppender) Commit() error {
	if a.d.shut {
		return errors.Join(errors.New("no"), a.Rollback())
	}
	return a.Appender.Commit()
}
