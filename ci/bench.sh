#!/bin/sh
# make bench: each suite on each kernel and clock, then one file
# build/bench/<suite>.json with a plot and the passes for benchstat beside it, and a page of all.
# KERNEL, CLOCKS, ONLY and PAIRS narrow a run down. PROFILE=1 writes a CPU profile of each row
# of the suite native. A benchmark, or a whole part,
# that fails is reported, the others are measured, and the exit status tells.
set -u
out=build/bench
root=$PWD
status=0
mkdir -p $out
${GO:-go} build -o build/bench-driver ./ci/bench && ${GO:-go} build -o build/rdmabench ./cmd/rdmabench &&
	${GO:-go} build -o build/rdmacached ./cmd/rdmacached && ${GO:-go} build -o build/hitrate ./cache/server/internal/hitrate &&
	cc -shared -fPIC -O2 -o build/yield.so ci/bench/verbs/yield/yield.c -ldl -libverbs || exit 1

# part SUITE CLOCK NAME COMMAND... : one part of a suite, in the lab or on this machine's device
part() {
	part_suite=$1 part_clock=$2 part_dir=$out/parts/$3
	shift 3
	rm -rf "$part_dir" && mkdir -p "$part_dir"
	began=$(date +%s)
	LAB_CLOCK=$part_clock "$@" "$root/${driver:-build/bench-driver}" -suite "$part_suite" -rdmabench "$root/build/rdmabench" -hitrate "$root/build/hitrate" -rdmacached "$root/build/rdmacached" -simhca "$root/build/simhca.so" -shim "$root/build/yield.so" \
		${ONLY:+-only "$ONLY"} ${PAIRS:+-pairs "$PAIRS"} ${profiles:+-profiles "$profiles"} -o "$root/$part_dir/records.json" || status=1
	echo "bench: $part_dir took $(($(date +%s) - began)) s" >&2
	files="$files $part_dir/records.json"
}

for suite in $(echo "${SUITE:-verbs}" | tr , ' '); do
	files="" driver="" profiles=""
	clocks="instructions wall"
	[ "$suite" = pacer ] && clocks="instructions instructions-2ns wall" # a fast link
	case $suite in # what needs no device runs on this machine
	verbs | pacer | cache) part "$suite-native" wall "$suite-native" env ;;
	esac
	if [ "$suite" = native ]; then # it has simulated devices in its program
		driver=build/bench-native profiles=${PROFILE:+$root/$out/native}
		${GO:-go} build -tags simhca -o $driver ./ci/bench || exit 1
		part native wall native env SIMHCA=mlx5,mlx5,efa
		driver="" profiles=""
		part native-processes wall native-processes env "SIMHCA=mlx5@bench-$$" "LD_PRELOAD=$root/build/simhca.so"
	elif [ "$suite" = cluster ]; then
		part cluster wall cluster env "SIMHCA=mlx5@bench-$$" "LD_PRELOAD=$root/build/simhca.so"
	elif [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
		part "$suite" wall "$suite-wall" env
	else
		for kernel in ${KERNEL:-${KERNELS:-6.1 6.12}}; do
			[ "$kernel" = none ] && continue # that is all
			for clock in ${CLOCKS:-$clocks}; do
				part "$suite" $clock "$suite-$kernel-$clock" \
					build/rxelab -kernel "$kernel" -clock $clock -timeout 60m -artifacts "$out/parts/$suite-$kernel-$clock" --
			done
			if [ "$suite" = srd ]; then # what several links tell
				for clock in ${CLOCKS:-$clocks}; do
					part srd-ecmp $clock "srd-ecmp-$kernel-$clock" \
						build/rxelab -kernel "$kernel" -topo ecmp -clock $clock -timeout 60m -artifacts "$out/parts/srd-ecmp-$kernel-$clock" --
				done
			fi
		done
	fi
	build/bench-driver -merge -o "$out/$suite.json" $files || status=1
done
build/bench-driver -report -o $out/index.html && echo "bench: $out/index.html has all results" || status=1
exit $status
