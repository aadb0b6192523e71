#!/bin/sh
# Runs go test on simulated devices: PACKAGES with FLAGS on DEVICES, which PRELOAD=true preloads. Packages
# of Debian or Ubuntu that are missing are installed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sh "$here/../install.sh" gcc libc6-dev make libibverbs-dev librdmacm-dev ibverbs-providers
export SIMHCA="${DEVICES:-mlx5,mlx5}"
# shellcheck disable=SC2086
if [ "${PRELOAD:-}" = true ]; then
	make -s -C "$here/../../.." build/simhca.so
	"${GO:-go}" test -exec "env LD_PRELOAD=$(cd "$here/../../.." && pwd)/build/simhca.so" ${FLAGS:-} ${PACKAGES:-./...}
else
	"${GO:-go}" test -tags simhca ${FLAGS:-} ${PACKAGES:-./...}
fi
