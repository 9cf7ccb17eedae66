SHELL := /bin/bash
TOOL := go tool -modfile=internal/tools/go.mod
# Modules of their own, so that what they need stays out of the library's go.mod. They are tested and linted with it.
MODULES := examples/handles examples/customstore internal/mysql8
# What a store of the examples goes without, so that storetest leaves out the cases that need it.
ABSENT := store.ChannelLister,store.Operator,store.Renewer

# Packages that take minutes and mostly wait. They begin first, so that the others run beside them.
LONG := ./sqlstore ./internal/integration

# One stream of results for all modules, which fails when any of its go commands does.
gotest = failed=; go test -json $(1) $(LONG) ./... || failed=1; \
	for module in $(MODULES); do go -C $$module test -json $(1) ./... || failed=1; done; [ -z "$$failed" ]

# For how long make fuzz tries each target.
FUZZTIME := 30s

# Packages of random and destructive tests, small in make test and large in make proof; and the random acts of storetest, on every
# store, of which it does so many sequences (rapid's own number, 100, would be taken for none asked for). The kills mostly wait, so they begin first and the others run beside them.
PROOF := ./internal/crash ./internal/simulation ./internal/linear ./internal/faultdriver ./internal/mutants
MODEL := -run='TestConformance/(uuid|text)/Model|TestConformance/mariadb/(uuid|text)/Model|TestConformance/[a-z]+/[a-zA-Z_]+/(uuid|text)/Model' \
	./store/memstore ./sqlstore
SEQUENCES := 200

.PHONY: help test test-quick proof mutants fuzz lint prepare

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Many tests wait for a server, so more of them run at once than there are processors.
# BUILD is for lint too, so that the dependencies are compiled once. All of them are: leaving one out of the race detector, such as
# the SQLite driver that it slows down most, makes it see races where generic code of the standard library is shared.
test: BUILD := -race
test: prepare lint ## everything, on real servers, with the race detector; as root on Debian it installs what is missing
	@set -o pipefail; export RECADO_TEST_STRICT=1 CGO_ENABLED=1; \
		{ $(call gotest,$(BUILD) -shuffle=on -timeout=15m -parallel=8); } | go run ./internal/testreport -strict -absent $(ABSENT)

test-quick: ## what needs nothing but Go; lists what it skipped and why
	@set -o pipefail; { $(call gotest); } | go run ./internal/testreport -absent $(ABSENT)

proof: prepare ## the promises under thousands of schedules, kills and faults, and the mutants that tests must notice; many minutes
	@set -o pipefail; export RECADO_PROOF=1 RECADO_TEST_STRICT=1 CGO_ENABLED=1; \
		{ failed=; RAPID_CHECKS=$(SEQUENCES) go test -json -count=1 $(MODEL) || failed=1; \
			go test -json -count=1 -p=2 -timeout=30m $(PROOF) || failed=1; [ -z "$$failed" ]; } | \
		go run ./internal/testreport -strict -seeds

mutants: prepare ## break the library in many small ways and name the test that notices each; minutes
	@set -o pipefail; RECADO_PROOF=1 RECADO_TEST_STRICT=1 go test -v -count=1 -timeout=30m ./internal/mutants | \
		grep -v -e '^=== ' -e '^ *--- PASS'

# go test fuzzes one target of one package at a time. What it finds is written below that package's testdata/fuzz, and from
# then on a case of the ordinary tests, which run all seeds. All that is compiled for it is compiled anew: without cgo, which
# would take minutes more.
fuzz: ## every fuzz target for FUZZTIME (30s); make test runs their seeds alone
	@targets=$$(grep -r --include='*_test.go' '^func Fuzz' . | sed -E 's|^(.*)/[^/]*:func (Fuzz[A-Za-z0-9_]*).*|\1 \2|' | sort) && \
		[ -n "$$targets" ] && failed= && while read -r package target; do \
			CGO_ENABLED=0 go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package </dev/null || failed="$$failed $$target"; \
		done <<< "$$targets" && { [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }; }

lint: ## vet, staticcheck, gofumpt, go.mod
	@staticcheck=$$($(TOOL) -n staticcheck) && for module in . $(MODULES); do (cd $$module && go vet $(BUILD) ./... && \
		GOFLAGS="$$(go env GOFLAGS) $(BUILD)" $$staticcheck ./...) || exit 1; done
	@unformatted=$$($(TOOL) gofumpt -l .) && { [ -z "$$unformatted" ] || \
		{ printf 'gofumpt would change:\n%s\n' "$$unformatted"; exit 1; }; }
	@for module in . internal/tools $(MODULES); do (cd $$module && go mod tidy -diff) || exit 1; done

prepare:
	@internal/tools/prepare.sh
