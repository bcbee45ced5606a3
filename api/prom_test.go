package api

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/wattloop/wattloop/store"
)

// The bodies are Prometheus's, written by hand from its documentation.
func TestGoldenQueryBodies(t *testing.T) {
	const data = `{"resultType":"vector","result":[{"metric":{"__name__":"up","job":"<a&b>"},"value":[1760000000,"1"]}]}`
	f := func(ans Answer, err error, code int, want string) {
		t.Helper()
		o := options()
		o.Query = func(context.Context, string, int64, time.Duration) (Answer, error) { return ans, err }
		o.QueryRange = func(context.Context, string, int64, int64, time.Duration, time.Duration) (Answer, error) {
			return ans, err
		}
		for _, target := range []string{"/api/v1/query?query=up", "/api/v1/query_range?query=up&start=0&end=1&step=1"} {
			for _, method := range []string{"GET", "POST"} {
				w := ask(Handler(o), method, target, nil)
				if diff := cmp.Diff(want+"\n", w.Body.String()); w.Code != code || diff != "" {
					t.Errorf("%s %s with %v: %d; want %d\n%s", method, target, err, w.Code, code, diff)
				}
			}
		}
	}
	f(Answer{Data: []byte(data)}, nil, 200, `{"status":"success","data":`+data+`}`)
	f(Answer{Data: []byte(data), Warnings: []string{"w"}, Infos: []string{"i", "j"}}, nil, 200,
		`{"status":"success","data":`+data+`,"warnings":["w"],"infos":["i","j"]}`)
	fails := func(typ string, code int) {
		t.Helper()
		f(Answer{}, &QueryError{typ, errors.New("why")}, code, `{"status":"error","errorType":"`+typ+`","error":"why"}`)
	}
	fails("bad_data", 400)
	fails("execution", 422)
	fails("canceled", 499)
	fails("timeout", 503)
	fails("unavailable", 503)
	fails("internal", 500)
	f(Answer{}, errors.New("why"), 500, `{"status":"error","errorType":"internal","error":"why"}`)
	f(Answer{Data: []byte(`{"cut`)}, nil, 500, `{"status":"error","errorType":"internal","error":"the answer has no JSON form"}`)
}

// got is what a query was asked with.
type got struct {
	Expr          string
	Start, End    int64
	Step, Timeout time.Duration
}

func TestInstantParameters(t *testing.T) {
	f := func(query string, ts int64, timeout time.Duration) {
		t.Helper()
		var g got
		o := options()
		o.Query = func(_ context.Context, expr string, ts int64, timeout time.Duration) (Answer, error) {
			g = got{expr, ts, ts, 0, timeout}
			return Answer{Data: []byte(`{}`)}, nil
		}
		want := got{"up", ts, ts, 0, timeout}
		if w := ask(Handler(o), "GET", "/api/v1/query?query=up&"+query, nil); w.Code != 200 || g != want {
			t.Errorf("%s: %d %v; want %v", query, w.Code, g, want)
		}
	}
	f("", 1760000000000, 30*time.Second)
	f("time=1760000001.234", 1760000001234, 30*time.Second)
	f("time=1.0005", 1001, 30*time.Second)
	f("time=-5", -5000, 30*time.Second)
	f("time=1e9", 1e12, 30*time.Second)
	f("time=2025-10-09T08:53:20Z", 1760000000000, 30*time.Second)
	f("time=2025-10-09T10:53:20.5%2B02:00", 1760000000500, 30*time.Second)
	f("timeout=5", 1760000000000, 5*time.Second)
	f("timeout=1m30s", 1760000000000, 90*time.Second)
	f("timeout=0.25", 1760000000000, 250*time.Millisecond)
}

func TestRangeParameters(t *testing.T) {
	f := func(query string, want got) {
		t.Helper()
		var g got
		o := options()
		o.QueryRange = func(_ context.Context, expr string, start, end int64, step, timeout time.Duration) (Answer, error) {
			g = got{expr, start, end, step, timeout}
			return Answer{Data: []byte(`{}`)}, nil
		}
		form := func(r *http.Request) { *r = *postForm(query).WithContext(r.Context()) }
		for name, change := range map[string]func(*http.Request){"GET": nil, "POST": form} {
			g = got{}
			if w := ask(Handler(o), name, "/api/v1/query_range?"+query, change); w.Code != 200 || g != want {
				t.Errorf("%s %s: %d %v; want %v", name, query, w.Code, g, want)
			}
		}
	}
	f("query=up&start=10&end=70&step=15", got{"up", 10000, 70000, 15 * time.Second, 30 * time.Second})
	f("query=up&start=10&end=10&step=0.001", got{"up", 10000, 10000, time.Millisecond, 30 * time.Second})
	f("query=up&start=0&end=11000&step=1s&timeout=2m", got{"up", 0, 11000000, time.Second, 2 * time.Minute})
	f("query=up&start=0&end=60&step=1d12h", got{"up", 0, 60000, 36 * time.Hour, 30 * time.Second})
}

func TestExemplarParameters(t *testing.T) {
	f := func(query string, start, end int64) {
		t.Helper()
		var g got
		o := options()
		o.QueryExemplars = func(_ context.Context, expr string, start, end int64) (Answer, error) {
			g = got{Expr: expr, Start: start, End: end}
			return Answer{Data: []byte(`[]`)}, nil
		}
		want := got{Expr: "up", Start: start, End: end}
		for name, change := range map[string]func(*http.Request){"GET": nil, "POST": func(r *http.Request) {
			*r = *postForm("query=up&" + query).WithContext(r.Context())
			r.URL.Path = "/api/v1/query_exemplars"
		}} {
			w := ask(Handler(o), name, "/api/v1/query_exemplars?query=up&"+query, change)
			if w.Code != 200 || g != want || w.Body.String() != `{"status":"success","data":[]}`+"\n" {
				t.Errorf("%s %s: %d %s %v; want %v", name, query, w.Code, w.Body, g, want)
			}
		}
	}
	f("", math.MinInt64, math.MaxInt64)
	f("start=10&end=70.5", 10000, 70500)
	f("start=2025-10-09T08:53:20Z", 1760000000000, math.MaxInt64)
	for _, bad := range []string{"start=10&end=9", "start=x", "end=-"} {
		if w := ask(Handler(options()), "GET", "/api/v1/query_exemplars?query=up&"+bad, nil); w.Code != 400 {
			t.Errorf("%s: %d %s", bad, w.Code, w.Body)
		}
	}
}

func postForm(form string) *http.Request {
	r, err := http.NewRequest("POST", "/api/v1/query_range", strings.NewReader(form))
	if err != nil {
		panic("BUG: " + err.Error())
	}
	r.Host = here
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

func TestBadParameters(t *testing.T) {
	f := func(target, want string) {
		t.Helper()
		w := ask(Handler(options()), "GET", target, nil)
		body := `{"status":"error","errorType":"bad_data","error":` + want + "}\n"
		if diff := cmp.Diff(body, w.Body.String()); w.Code != 400 || diff != "" {
			t.Errorf("%s: %d\n%s", target, w.Code, diff)
		}
	}
	const q, r = "/api/v1/query?query=up", "/api/v1/query_range?query=up"
	f(q+"&time=yesterday", `"invalid parameter \"time\": cannot parse \"yesterday\" to a valid timestamp"`)
	f(q+"&time=NaN", `"invalid parameter \"time\": cannot parse \"NaN\" to a valid timestamp"`)
	f(q+"&time=1e300", `"invalid parameter \"time\": cannot parse \"1e300\" to a valid timestamp"`)
	f(q+"&timeout=soon", `"invalid parameter \"timeout\": cannot parse \"soon\" to a valid duration"`)
	f(q+"&timeout=1.5h", `"invalid parameter \"timeout\": cannot parse \"1.5h\" to a valid duration"`)
	f(q+"&timeout=30m1h", `"invalid parameter \"timeout\": cannot parse \"30m1h\" to a valid duration"`)
	f(q+"&timeout=9999999y", `"invalid parameter \"timeout\": cannot parse \"9999999y\" to a valid duration"`)
	f(q+"&timeout=NaN", `"invalid parameter \"timeout\": cannot parse \"NaN\" to a valid duration"`)
	f(r+"&end=1&step=1", `"invalid parameter \"start\": missing; give Unix seconds or RFC 3339"`)
	f(r+"&start=0&step=1", `"invalid parameter \"end\": missing; give Unix seconds or RFC 3339"`)
	f(r+"&start=2&end=1&step=1", `"invalid parameter \"end\": end timestamp must not be before start time"`)
	f(r+"&start=0&end=1", `"invalid parameter \"step\": zero or negative query resolution step widths are not accepted. Try a positive integer"`)
	f(r+"&start=0&end=1&step=-1", `"invalid parameter \"step\": zero or negative query resolution step widths are not accepted. Try a positive integer"`)
	f(r+"&start=0&end=11001&step=1", `"more than 11000 points a series; widen the step or shorten the range"`)
	f("/api/v1/query?query=%zz", `"error parsing form values: invalid URL escape \"%zz\""`)
}

// TestC69: values that are not finite are strings.
func TestC69(t *testing.T) {
	const start = 1760000000
	db, err := store.Open(store.Options{Path: t.TempDir(), Durability: store.DurabilityOS})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	app := db.Appender(t.Context())
	for _, s := range []struct { // in the order of series.load
		k string
		v float64
	}{{"nan", nan}, {"inf", inf}, {"ninf", -inf}, {"one", 1}} {
		if _, err := app.Append(0, labels.FromStrings("__name__", "x", "k", s.k), start*1000, s.v); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Query = func(ctx context.Context, expr string, ts int64, timeout time.Duration) (Answer, error) {
		a, err := db.QueryJSON(ctx, expr, ts, timeout)
		return Answer{Data: a.Data}, err
	}
	o.QueryRange = func(ctx context.Context, expr string, start, end int64, step, timeout time.Duration) (Answer, error) {
		a, err := db.QueryRangeJSON(ctx, expr, start, end, step, timeout)
		return Answer{Data: a.Data}, err
	}
	f := func(file, want string) {
		t.Helper()
		b, err := os.ReadFile("../testdata/cases/C69-api-nonfinite-json/" + file)
		if err != nil {
			t.Fatal(err)
		}
		target, err := url.Parse(strings.Fields(string(b))[1])
		if err != nil {
			t.Fatal(err)
		}
		w := ask(Handler(o), "GET", target.String(), nil)
		if diff := cmp.Diff(`{"status":"success","data":`+want+"}\n", w.Body.String()); w.Code != 200 || diff != "" {
			t.Errorf("%s: %d\n%s", file, w.Code, diff)
		}
	}
	one := func(k, v string) string {
		return `{"metric":{"__name__":"x","k":"` + k + `"},"value":[1760000000,"` + v + `"]}`
	}
	f("1.http", `{"resultType":"vector","result":[`+one("nan", "NaN")+`,`+one("inf", "+Inf")+`,`+one("ninf", "-Inf")+`,`+one("one", "1")+`]}`)
	f("2.http", `{"resultType":"vector","result":[{"metric":{},"value":[1760000000,"NaN"]}]}`)
	three := func(k, v string) string {
		return `{"metric":{"__name__":"x","k":"` + k + `"},"values":[[1760000000,"` + v + `"],[1760000030,"` + v + `"],[1760000060,"` + v + `"]]}`
	}
	f("3.http", `{"resultType":"matrix","result":[`+three("inf", "+Inf")+`,`+three("nan", "NaN")+`,`+three("ninf", "-Inf")+`,`+three("one", "1")+`]}`)
}
