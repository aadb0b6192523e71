#!/bin/sh
# Debian 12's unchanged UCX in one process and between two, and libfabric's reliable datagrams between two.
set -u
. cgo/simhca/testdata/listens.sh
preload=$PWD/build/simhca.so
# UCX's own interception of mmap leads past simhca's.
export SIMHCA=mlx5@ucx-$$ UCX_MEM_MMAP_HOOK_MODE=none UCX_WARN_UNUSED_ENV_VARS=n
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
port=$((30000 + $$ % 10000))

fail() {
	echo "$@: failed" >&2
	cat "$logs"/* >&2
	exit 1
}

# result FILE RESULT NAME...: the program ends with a line that matches RESULT, and without an error.
result() {
	grep -q "$2" "$1" && ! grep -qi error "$1" || { shift 2; fail "$@"; }
	line=$(grep "$2" "$1" | tail -1)
	shift 2
	echo "$@:" $line
}

run() { LD_PRELOAD=$preload timeout 60 "$@"; }

alone() {
	run ucx_perftest -l -d mlx5_0:1 "$@" >"$logs/client" 2>&1 || fail ucx_perftest "$@"
	result "$logs/client" '^Final:' ucx_perftest -l "$@"
}

# both RESULT SERVER CLIENT: of which SERVER, a command line, listens on $port.
both() {
	want=$1 server=$2 client=$3
	run $server >"$logs/server" 2>&1 &
	pid=$!
	listens $port $pid || fail $server
	run $client >"$logs/client" 2>&1 || fail $client
	wait $pid || fail $server
	result "$logs/client" "$want" $client
	port=$((port + 1))
}

alone -x ud_verbs -t am_lat -s 64 -n 20000
alone -x ud_verbs -t am_bw -s 100 -n 20000
alone -x rc_verbs -t am_lat -s 64 -n 20000
alone -x rc_verbs -t put_lat -s 64 -n 20000
alone -x rc_verbs -t get -D zcopy -s 16384 -n 5000
alone -x rc_verbs -t fadd -s 8 -n 5000
for x in ud rc dc; do
	alone -x ${x}_mlx5 -t am_lat -s 64 -n 2000
done
alone -x rc_mlx5 -t fadd -s 8 -n 500
alone -x dc_mlx5 -t get -D zcopy -s 16384 -n 500
for t in "-x dc_mlx5 -t put_lat -s 64" "-x ud_verbs -t am_lat -s 64" "-x rc_verbs -t am_lat -s 64" "-x rc_verbs -t put_lat -s 64" "-x rc_verbs -t get -D zcopy -s 16384" "-x rc_verbs -t cswap -s 8"; do
	both ^Final: "ucx_perftest -p $port" "ucx_perftest -p $port -d mlx5_0:1 -n 300 $t 127.0.0.1"
done
both ^64 "fi_pingpong -p verbs;ofi_rxd -e rdm -I 300 -S 64 -B $port" "fi_pingpong -p verbs;ofi_rxd -e rdm -I 300 -S 64 -P $port 127.0.0.1"
