#!/bin/sh
# Installs those of Debian's or Ubuntu's packages named as arguments that are missing.
set -eu
list=$(for p; do dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || echo "$p"; done)
[ -n "$list" ] || exit 0
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
as_root apt-get -qq update
# shellcheck disable=SC2086
as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $list
