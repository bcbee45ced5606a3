package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// risingRef is a counter on a page: @60@ goes up by 60 a second from 1000 on.
var risingRef = regexp.MustCompile(`@([0-9.]+)@`)

// pages DIR serves the files of a folder as exporters serve their pages, at $PAGES.
func scriptPages(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: pages DIR")
	}
	dir, began := ts.MkAbs(args[0]), time.Now()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := os.ReadFile(filepath.Join(dir, filepath.Base(r.URL.Path)))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		since := time.Since(began).Seconds()
		w.Write(risingRef.ReplaceAllFunc(b, func(ref []byte) []byte {
			watts, _ := strconv.ParseFloat(string(ref[1:len(ref)-1]), 64)
			return strconv.AppendFloat(nil, 1000+watts*since, 'f', 6, 64)
		}))
	}))
	ts.Defer(s.Close)
	ts.Setenv("PAGES", s.URL)
}
