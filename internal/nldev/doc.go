// Package nldev asks the kernel's RDMA subsystem over netlink what it knows of
// devices, ports, counters and the objects that processes hold. None of it
// needs privileges or a device file. All functions are safe for concurrent use;
// each opens a socket of its own.
package nldev
