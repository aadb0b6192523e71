#!/bin/sh
# Installs what this machine misses of the packages named as arguments, and Go.
# As root or with sudo; without either, and on systems without apt, it says in
# one line what to install.
set -eu
cd "$(dirname "$0")/.."

# missing PACKAGE... : those that are not there. Where there is no dpkg, what a
# package is needed for is looked for instead.
missing() {
	for p; do
		if command -v dpkg-query >/dev/null; then
			dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || echo "$p"
			continue
		fi
		case $p in
		gcc) command -v cc || command -v gcc ;;
		libc6-dev) header stdio.h ;;
		libibverbs-dev) header infiniband/verbs.h ;;
		librdmacm-dev) header rdma/rdma_cma.h ;;
		ibverbs-utils) command -v ibv_devinfo ;;
		rdmacm-utils) command -v rping ;;
		perftest) command -v ib_read_lat ;;
		iproute2) command -v ip && command -v rdma ;;
		kmod) command -v modprobe ;;
		qemu-system-x86) command -v qemu-system-x86_64 ;;
		redis-tools) command -v redis-server || command -v redis-check-rdb ;;
		memcached) command -v memcached ;;
		ucx-utils) command -v ucx_perftest ;;
		libfabric-bin) command -v fi_pingpong ;;
		gcc-aarch64-linux-gnu) command -v aarch64-linux-gnu-gcc ;;
		*) true ;; # what only Debian has as a package of its own
		esac >/dev/null 2>&1 || echo "$p"
	done
}

header() { printf '#include <%s>\n' "$1" | cc -E - >/dev/null 2>&1; }

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# apt's own timer works after a machine's first boot, and holds its locks meanwhile.
apt() {
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=600 "$@"
}

able() { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }

# again COMMAND... : up to four times. Mirrors that are being updated, networks that are
# away for a moment and locks that apt does not wait for are no reason to fail.
again() {
	for pause in 5 15 30; do
		"$@" && return
		sleep $pause
	done
	"$@"
}

# The index first, each time: a mirror removes packages for newer ones.
install() { apt update && apt install -y --no-install-recommends "$@"; }

# What the go command downloads: it does not try again itself. MODULES names the packages
# that are built where not all are.
modules() {
	[ build/.modules -nt go.sum ] && [ build/.modules -nt ci/bench/go.sum ] && return
	if [ -n "${MODULES:-}" ]; then
		# shellcheck disable=SC2086
		again env GOTOOLCHAIN="${GOTOOLCHAIN:-auto}" "$1" list -deps $MODULES >/dev/null
		return
	fi
	again env GOTOOLCHAIN="${GOTOOLCHAIN:-auto}" "$1" list -deps -test ./... ./ci/bench/... tool >/dev/null || return
	mkdir -p build && touch build/.modules
}

list=$(missing "$@" | tr '\n' ' ')
have_go=$(sh ci/find-go.sh) || have_go=
# The distribution's Go fetches the right one if it is 1.21 or newer.
if [ -z "$have_go" ] && command -v apt-cache >/dev/null; then
	[ -n "$(ls /var/lib/apt/lists/*_Packages* 2>/dev/null)" ] || { able && again apt update; } || true
	candidate=$(apt-cache policy golang-go 2>/dev/null | sed -n 's/ *Candidate: 2:1\.\([0-9]*\).*/\1/p')
	[ "${candidate:-0}" -lt 21 ] || list="$list golang-go"
fi
if [ -n "${list# }" ]; then
	if ! command -v apt-get >/dev/null || ! able; then
		echo "please install: $list(names of Debian's packages)" >&2
		exit 1
	fi
	# shellcheck disable=SC2086
	again install $list
fi
sh ci/find-go.sh >/dev/null || sh ci/fetch-go.sh
modules "$(sh ci/find-go.sh)" || true # what is at hand may be enough for what is wanted
