#!/bin/sh
# Prints the go command to use: $GO, or one that is new enough to fetch the
# version that go.mod asks for. Exit status 1 if there is none.
set -eu
cache=${LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/goverbs-lab}
for go in ${GO:+"$GO"} go /usr/local/go/bin/go "$cache"/go/usr/lib/go-*/bin/go; do
	# "go version go1.24.4 linux/amd64"; GOTOOLCHAIN=local: of this very one
	minor=$(cd / && GOTOOLCHAIN=local "$go" version 2>/dev/null | sed -n 's/^go version go1\.\([0-9]*\).*/\1/p') || continue
	[ "${minor:-0}" -ge 21 ] || continue
	echo "$go"
	exit 0
done
exit 1
