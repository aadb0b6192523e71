// Package etcd runs a real etcd for tests and benchmarks: that of Debian's package etcd-server, which is unpacked into
// the lab's cache and not installed, or the program that $ETCD names.
package etcd
