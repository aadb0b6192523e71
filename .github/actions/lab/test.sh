#!/bin/sh
# Runs go test in the lab: PACKAGES with FLAGS, and LAB for rxelab. Packages of Debian or Ubuntu that are
# missing are installed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
sh "$here/../install.sh" gcc libc6-dev libibverbs-dev librdmacm-dev ibverbs-providers rdma-core iproute2 kmod qemu-system-x86 xz-utils ca-certificates \
	$(. /etc/os-release && [ "$ID" = debian ] || echo debian-archive-keyring)
# Kernels come from Debian, whatever this host is.
[ -n "${LAB_MIRROR:-}" ] || [ "$(. /etc/os-release && echo "$ID")" = debian ] || export LAB_MIRROR=http://deb.debian.org/debian
[ ! -e /dev/kvm ] || [ -w /dev/kvm ] || sudo -n chmod 666 /dev/kvm || true # it is slower without
rxelab=${RUNNER_TEMP:-${TMPDIR:-/tmp}}/rxelab
(cd "$here/../../.." && CGO_ENABLED=0 "${GO:-go}" build -o "$rxelab" ./ci/rxelab)
# shellcheck disable=SC2086
"${GO:-go}" test -exec "$rxelab ${LAB:-}" ${FLAGS:-} ${PACKAGES:-./...}
