#!/bin/sh
# Installs the packages of build/deb on this host, tries them, and removes them. It is for fresh
# containers and chroots: settings of rdmacached that are there already would be lost.
set -eu
cd "$(dirname "$0")/.."
[ ! -e /etc/rdmacached ] || { echo "try.sh: /etc/rdmacached is in use" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y --no-install-recommends ./build/deb/*.deb
for program in rdmactl rdmabench rdmacached; do "$program" -version; done
rdmactl doctor || [ $? = 1 ] # a host without RDMA has problems, of which it tells
as_user() { setpriv --reuid rdmacached --regid rdmacached --init-groups "$@"; }
as_user cat /etc/rdmacached/rdmacached.json >/dev/null
! setpriv --reuid nobody --regid nogroup --clear-groups cat /etc/rdmacached/rdmacached.json 2>/dev/null
as_user rdmacached -config /etc/rdmacached/rdmacached.json -check 2>&1 | grep 10.77.0.2 # no address of this host
[ -f /usr/lib/systemd/system/rdmacached.service ]
apt-get -qq install -y --reinstall ./build/deb/rdmacached_*.deb # as an upgrade
apt-get -qq purge -y rdmacached rdmabench rdmactl
[ ! -e /etc/rdmacached ] && [ ! -e /usr/bin/rdmacached ] && [ ! -e /usr/bin/rdmactl ]
echo "the packages work"
