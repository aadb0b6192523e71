#!/bin/sh
# Compares the working tree with another revision, by default main:
#
#	sh ci/compare.sh api main      # what changed in the API, incompatible changes first
#	sh ci/compare.sh speed main    # benchmarks that need no device; the sides take turns
set -eu
cd "$(dirname "$0")/.."
what=${1:?api or speed} base=${2:-main}
apidiff=golang.org/x/exp/cmd/apidiff@v0.0.0-20260824195058-e88cd73687aa
benchstat=golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da
go=$(sh ci/find-go.sh)
root=$PWD tmp=$(mktemp -d)
trap 'git worktree remove --force "$tmp/base"; rm -rf "$tmp"' EXIT
git worktree add --quiet --detach "$tmp/base" "$base"

case $what in
api)
	GOBIN=$tmp "$go" install $apidiff
	(cd "$tmp/base" && "$tmp/apidiff" -m -w "$tmp/base.api" github.com/goverbs/goverbs)
	"$tmp/apidiff" -m "$tmp/base.api" github.com/goverbs/goverbs
	;;
speed)
	packages="./cache/internal/evict ./cache/internal/store ./pacer/internal/shaper ./srd/internal/engine ./verbs"
	build() { (cd "$2" && mkdir "$tmp/$1" && "$go" test -c -o "$tmp/$1/" $packages); }
	measure() {
		for p in $packages; do
			(cd "$2/$p" && "$tmp/$1/$(basename "$p").test" -test.run '^$' -test.bench . -test.benchtime 0.2s) >>"$tmp/$1.txt"
		done
	}
	build before "$tmp/base"
	build after "$root"
	for _ in 1 2 3 4 5 6; do
		measure before "$tmp/base"
		measure after "$root"
	done
	"$go" run $benchstat "before=$tmp/before.txt" "after=$tmp/after.txt"
	;;
*)
	echo "compare.sh: $what: api or speed" >&2
	exit 2
	;;
esac
