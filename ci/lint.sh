#!/bin/sh
# What is checked without running anything: formatting, staticcheck, a build without cgo,
# which files are tracked, and the workflows. go vet has a step of its own.
set -u
go=${GO:-go}
status=0

# complain WHAT LIST
complain() {
	[ -z "$2" ] || { printf '%s:\n%s\n' "$1" "$2"; status=1; }
}

complain "gofmt these files" "$("$("$go" env GOROOT)/bin/gofmt" -l .)"
complain "tracked files over 300 kB" "$(git ls-files -z 2>/dev/null | xargs -0 -r stat -c '%s %n' | awk '$1 > 300000')"
# In git's numbers a binary file has no lines. 4b825dc is the empty tree.
complain "tracked binary files" "$(git diff --numstat 4b825dc642cb6eb9a060e54bf8d69288fbee4904 2>/dev/null | awk '$1 == "-" { print $3 }')"
complain "staticcheck.conf and .golangci.yml have other checks" "$(sed -n 's/^ *checks[ =:]*//p' staticcheck.conf .golangci.yml | uniq -u)"
"$go" tool staticcheck ./... ./ci/bench/... || status=1
"$go" tool actionlint -shellcheck= -pyflakes= .github/workflows/*.yml || status=1
CGO_ENABLED=0 "$go" build ./dc ./srd ./lockoffload ./pacer ./cache || status=1
exit $status
