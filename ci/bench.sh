#!/bin/sh
# make bench: each suite on each clock that it is measured on, then one file
# build/bench/<suite>.json with a plot and the passes for benchstat beside it.
# ONLY and PAIRS narrow a run down.
set -eu
out=build/bench
mkdir -p $out
go build -o build/bench-driver ./ci/bench
go build -o build/rdmabench ./cmd/rdmabench
cc -shared -fPIC -O2 -o build/yield.so ci/bench/yield/yield.c -ldl -libverbs
root=$PWD

# part SUITE CLOCK FILE COMMAND... : one part of a suite, in the lab or on this machine's device
part() {
	part_suite=$1 part_clock=$2 part_file=$3
	shift 3
	set -- "$@" "$root/build/bench-driver" -suite "$part_suite" -rdmabench "$root/build/rdmabench" -shim "$root/build/yield.so" \
		${ONLY:+-only "$ONLY"} ${PAIRS:+-pairs "$PAIRS"} -o "$root/$out/$part_file"
	LAB_CLOCK=$part_clock "$@"
}

for suite in $(echo "$SUITE" | tr , ' '); do
	files=""
	if [ "$suite" = verbs ]; then
		part verbs-native wall verbs-native.json env
		files="$out/verbs-native.json"
	fi
	if [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
		part "$suite" wall "$suite-wall.json" env
		files="$files $out/$suite-wall.json"
	else
		for clock in instructions wall; do
			part "$suite" $clock "$suite-$clock.json" build/rxelab -kernel "${KERNEL:-6.1}" -clock $clock -timeout 60m -artifacts $out --
			files="$files $out/$suite-$clock.json"
		done
	fi
	build/bench-driver -merge -o "$out/$suite.json" $files
done
