// Rdmactl looks at the RDMA devices of a host and at the ways between hosts.
package main
