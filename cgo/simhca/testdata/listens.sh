# listens PORT PID waits until a port is listened on, by a process that must not end before. To connect
# would take a turn of the programs that serve one client.
listens() {
	hex=$(printf ':%04X' $1)
	until grep -q "$hex 0*:0000 0A" /proc/net/tcp /proc/net/tcp6; do
		kill -0 $2 || return
		sleep 0.05
	done
}
