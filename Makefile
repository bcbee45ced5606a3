# wattloop: two commands do everything on a fresh machine: make demo, make test.
SHELL       := /bin/bash
.SHELLFLAGS := -o pipefail -ec
.DEFAULT_GOAL := help

# The NVML binding calls functions that its own header marks deprecated.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations
# What runs hot is compiled for it (docs/bench.md); not in cmd/wattloop/default.pgo,
# which the tests would be compiled with too.
GOFLAGS_BUILD := -pgo=cmd/wattloop/wattloop.pgo -ldflags="-s -w -X main.version=$(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)"
STATICCHECK   := go tool -modfile=tools.mod staticcheck
TIMEOUT       ?= 15m

.PHONY: build demo test lint js mutants clients golden bench profile soak fuzz deps help

build: ## bin/wattloop, stripped; the first build compiles Prometheus's TSDB and takes a few minutes
	@total=$$(go list -deps ./cmd/wattloop | wc -l); \
	go build -v $(GOFLAGS_BUILD) -o bin/wattloop ./cmd/wattloop 2>&1 | \
	awk -v total=$$total -v tty=$$(test -t 2 && echo 1 || echo 0) ' \
	  /^[a-z0-9.]+[a-zA-Z0-9.\/_@-]*$$/ { n++; \
	    if (n == 1) printf "go build  0/%d packages (the first build compiles Prometheus'"'"'s TSDB; later ones take seconds)\n", total > "/dev/stderr"; \
	    if (tty) printf "\rgo build  %d/%d packages ", n, total > "/dev/stderr"; \
	    else if (n % 100 == 0) printf "go build  %d/%d packages\n", n, total > "/dev/stderr"; next } \
	  { print > "/dev/stderr" } \
	  END { if (n > 0 && tty) printf "\n" > "/dev/stderr" }'

demo: build ## a simulated node under a power budget; nothing on this machine is touched
	@bin/wattloop demo $(ARGS)

test: build lint js ## vet, staticcheck and every test under the race detector
	@go test -race -timeout $(TIMEOUT) -parallel 4 -json ./... | go run ./internal/testsum

lint: ## gofmt, go vet and staticcheck
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo "gofmt: run gofmt -w on the files above" >&2; exit 1; }
	@go vet ./...
	@$(STATICCHECK) ./...

js: ## the OpenTelemetry JS SDK, for the tests with real clients; without npm they are skipped
	@if ! command -v npm >/dev/null; then echo "skip  the JS SDK (npm is missing)"; \
	elif ! cmp -s testdata/js/package-lock.json testdata/js/node_modules/.installed; then \
	  if npm ci --prefix testdata/js --ignore-scripts --no-audit --no-fund --silent; then cp testdata/js/package-lock.json testdata/js/node_modules/.installed; \
	  else echo "skip  the JS SDK (npm ci failed)"; rm -rf testdata/js/node_modules; fi; fi

mutants: ## put each fault of testdata/mutants into the code: the tests it names must find it
	@go run ./internal/mutants $(ARGS)

clients: build ## telemetrygen and an OpenTelemetry Collector, built from their modules, send to wattloop
	@bench/clients/run

golden: ## rewrite the golden files; read the diff before you accept it
	@go test ./presets/names ./rules ./api ./cmd/wattloop -run 'Golden|Script' -update

bench: build ## figures as "name value unit" lines, beside Prometheus and VictoriaMetrics (docs/bench.md)
	@cd bench && go run . -wattloop ../bin/wattloop $(ARGS)

profile: ## measure anew what the binary is compiled for, cmd/wattloop/wattloop.pgo
	@cd bench && go run . -profile ../cmd/wattloop/wattloop.pgo

soak: build ## the long runs: 500 engine kills, 30 minutes of bombs
	@WATTLOOP_KILLS=$${WATTLOOP_KILLS:-500} go test -timeout 3h -v -count=1 -parallel 5 -run 'TestEngineKilled' ./cmd/wattloop
	@WATTLOOP_BOMBS=$${WATTLOOP_BOMBS:-30m} go test -timeout 1h -v -count=1 -run 'TestBombs' ./cmd/wattloop

FUZZTIME ?= 60s
fuzz: ## every fuzz target for FUZZTIME each
	@for f in $$(grep -rl --include='*_test.go' '^func Fuzz' .); do \
	  for t in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' $$f); do \
	    echo "$$t ($$(dirname $$f))"; go test -run '^$$' -fuzz "^$$t$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$(dirname $$f); done; done

deps: ## rewrite deps.txt, the modules linked into the binary
	@go version -m bin/wattloop | awk '$$1 == "dep" { print $$2, $$3 }' > deps.txt; wc -l < deps.txt | xargs printf '%s modules\n'

help: ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile
