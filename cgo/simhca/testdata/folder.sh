#!/bin/sh
# A folder of fabrics that is full, read-only or another user's: the program says so, and has no devices.
set -eu
preload=$PWD/build/simhca.so
how=-m
unshare $how true 2>/dev/null || how=-rm
unshare $how true || {
	echo "no mount namespaces here: not tested" >&2
	exit 0
}

# says WANT OPTIONS COMMANDS runs a program with /dev/shm and /tmp so mounted, after the commands.
says() {
	said=$(TMPDIR=/var/tmp LD_PRELOAD= unshare $how sh -c "mount -t tmpfs none /dev/shm && mount -t tmpfs none /tmp && ($3) &&
		mount -o remount,$2 /dev/shm && mount -o remount,$2 /tmp && SIMHCA=mlx5@folder LD_PRELOAD=$preload ibv_devices" 2>&1) || true # a host without devices is an error of it
	case "$said" in *mlx5_0*) false ;; *"$1"*) ;; *) false ;; esac || {
		echo "mounted with $2, after $3, want: $1" >&2
		echo "$said" >&2
		exit 1
	}
}

folder=/dev/shm/simhca-fabric-$(unshare $how id -u)
says "Read-only file system" ro :
says "$folder/folder: No space left on device" size=256k :
says "no room for the fabric: No space left on device" size=1200k :
says "$folder is no folder that this user has alone" rw "mkdir -m 777 $folder"
[ "$(id -u)" != 0 ] || says "$folder is no folder that this user has alone" rw "mkdir -m 700 $folder && chown 1 $folder"
