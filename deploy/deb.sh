#!/bin/sh
# Builds Debian packages of rdmactl, rdmabench and rdmacached for this host's release and architecture in
# build/deb. The version is that of the last tag. Two builds of one revision by one compiler are the same.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
out=build/deb
rm -rf $out
mkdir -p $out/bin

arch=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
version=$(git describe --tags --match 'v[0-9]*' 2>/dev/null | sed -e 's/^v//' -e 's/-\([0-9]*\)-g/+\1.g/') ||:
[ -n "$version" ] || version=0~git$(git log -1 --format=%cd --date=format:%Y%m%d).$(git rev-parse --short=12 HEAD)
"$go" build -buildvcs=true -trimpath -ldflags='-s -w -buildid=' -o $out/bin/ ./cmd/...

# root NAME: the folder that becomes a package, with the program
root() {
	install -D -m 755 "$out/bin/$1" "$out/$1/usr/bin/$1"
	install -D -m 644 LICENSE "$out/$1/usr/share/doc/$1/copyright"
	install -D -m 644 CHANGELOG.md "$out/$1/usr/share/doc/$1/NEWS"
	mkdir "$out/$1/DEBIAN"
}

# pack NAME DEPENDS RECOMMENDS SUMMARY < description
pack() {
	libc=$(objdump -T "$out/bin/$1" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
	{
		printf 'Package: %s\nVersion: %s\nArchitecture: %s\nSection: net\nPriority: optional\n' "$1" "$version" "$arch"
		printf 'Maintainer: goverbs <https://github.com/goverbs/goverbs/issues>\nHomepage: https://github.com/goverbs/goverbs\n'
		printf 'Depends: libc6 (>= %s), libibverbs1 (>= 44), librdmacm1 (>= 44)%s\nRecommends: ibverbs-providers, %s\n' "${libc#GLIBC_}" "$2" "$3"
		printf 'Installed-Size: %s\nDescription: %s\n' "$(du -sk --exclude=DEBIAN "$out/$1" | cut -f 1)" "$4"
		sed 's/^/ /'
	} >"$out/$1/DEBIAN/control"
	(cd "$out/$1" && find usr -type f | LC_ALL=C sort | xargs md5sum >DEBIAN/md5sums)
	find "$out/$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	dpkg-deb --root-owner-group -Zxz --build "$out/$1" $out >/dev/null
	rm -rf "${out:?}/$1"
}

root rdmactl
pack rdmactl '' iproute2 'inspect and test RDMA devices' <<'EOF'
Lists the RDMA devices of a host with their ports, GIDs and features, shows how
packets reach an address, says what is wrong with RDMA on the host and what
helps, and tries what a device can do.
EOF

root rdmabench
pack rdmabench '' rdmactl 'measure RDMA latency and bandwidth' <<'EOF'
Measures latency and bandwidth of RDMA operations between two hosts, with the
flags and by the rules of perftest, and prints tables or JSON.
EOF

root rdmacached
unit=$out/rdmacached/usr/lib/systemd/system/rdmacached.service
install -D -m 644 cmd/rdmacached/rdmacached.service "$unit"
sed -i -e 's#/usr/local/bin/#/usr/bin/#' -e '/^# A unit/,/^$/d' "$unit"
install -D -m 640 deploy/rdmacached.json $out/rdmacached/etc/rdmacached/rdmacached.json
install -D -m 644 deploy/grafana.json $out/rdmacached/usr/share/doc/rdmacached/grafana.json
echo /etc/rdmacached/rdmacached.json >$out/rdmacached/DEBIAN/conffiles
for script in postinst prerm postrm; do install -m 755 deploy/debian/$script $out/rdmacached/DEBIAN; done
pack rdmacached ', passwd' rdmactl 'cache that is read by RDMA READ' <<'EOF'
The server of a cache: its clients read records by RDMA, without its CPU, and
other programs use it by memcached's protocol over TCP.
.
The service does not start by itself: write this host's address into
/etc/rdmacached/rdmacached.json, and then "systemctl enable --now rdmacached".
EOF
rm -rf $out/bin
(cd $out && sha256sum ./*.deb)
