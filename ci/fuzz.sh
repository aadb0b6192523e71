#!/bin/sh
# Fuzzes each fuzz test for so many seconds (by default 10): sh ci/fuzz.sh 60. A package's path or a
# part of it as the second argument selects some. Inputs that fail are left in testdata/fuzz.
set -u
cd "$(dirname "$0")/.."
go=$(sh ci/find-go.sh) || { echo "there is no go: make setup" >&2; exit 1; }
status=0
for file in $(git ls-files '*_test.go' | xargs grep -l '^func Fuzz' | grep -- "${2:-}"); do
	for name in $(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' "$file"); do
		echo "## $(dirname "$file") $name"
		"$go" test -run '^$' -fuzz "^$name\$" -fuzztime "${1:-10}s" "./$(dirname "$file")" || status=1
	done
done
exit $status
