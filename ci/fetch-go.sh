#!/bin/sh
# Unpacks Debian 13's Go into the cache, for a Debian 12 that has none: nothing
# is installed. It fetches the version that go.mod asks for by itself.
set -eu
cache=${LAB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/goverbs-lab}
mirror=${LAB_MIRROR:-$(sed -n -e 's#^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*/debian\)/\{0,1\} .*#\2#p' -e 's#^URIs: *\([^ ]*/debian\)/\{0,1\} *$#\1#p' \
	/etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1)}
if [ -z "$mirror" ] || ! command -v apt-get >/dev/null; then
	echo "please install: Go 1.21 or newer" >&2
	exit 1
fi
mkdir -p "$cache"
tmp=$(mktemp -d "$cache/go-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/state/lists/partial" "$tmp/cache/archives/partial" "$tmp/parts" "$tmp/tree"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$tmp/sources.list"
apt() {
	(cd "$tmp" && apt-get -qq -o Dir::Etc::sourcelist="$tmp/sources.list" -o Dir::Etc::sourceparts="$tmp/parts" -o Dir::State="$tmp/state" \
		-o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$tmp/cache" -o APT::Sandbox::User="$(id -un)" \
		-o Acquire::Languages=none -o Acquire::Retries=3 "$@")
}
fetch() { apt update && apt download golang-1.24-go golang-1.24-src; }
fetch || { sleep 10 && fetch; } || { sleep 30 && fetch; } # a mirror may be in the middle of its update
for deb in "$tmp"/*.deb; do dpkg -x "$deb" "$tmp/tree"; done
rm -rf "$cache/go"
mv "$tmp/tree" "$cache/go"
sh "$(dirname "$0")/find-go.sh" >/dev/null
