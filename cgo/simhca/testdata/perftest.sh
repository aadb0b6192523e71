#!/bin/sh
# Debian's unchanged perftest between two processes, with each operation of RC and with UD.
set -u
. cgo/simhca/testdata/listens.sh
export SIMHCA=mlx5@test-$$
preload=$PWD/build/simhca.so
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
port=$((20000 + $$ % 10000))

# start PROGRAM OPTIONS... starts a server and waits until it listens.
start() {
	port=$((port + 1))
	LD_PRELOAD=$preload "$@" -p $port >"$logs/server" 2>&1 &
	server=$!
	listens $port $server || fail "$@"
}

fail() {
	echo "$@: failed" >&2
	cat "$logs/server" "$logs/client" >&2
	exit 1
}

both() {
	start "$@"
	LD_PRELOAD=$preload timeout 60 "$@" -p $port 127.0.0.1 >"$logs/client" 2>&1 || fail "$@"
	wait $server || fail "$@"
	echo "$@: $(grep -A1 '#bytes' "$logs/client" | tail -1)"
}

both ib_read_lat -n 500
both ib_read_lat -n 500 -d mlx5_0 -x 3
SIMHCA_ADDRESS=127.0.0.3 both ib_read_lat -n 500
both ib_write_lat -n 100
both ib_send_lat -n 100
both ib_send_lat -n 100 -c UD
both ib_atomic_lat -n 500
both ib_read_bw -n 200 -s 65536
both ib_write_bw -n 200 -s 65536
both ib_send_bw -n 100 -s 65536
