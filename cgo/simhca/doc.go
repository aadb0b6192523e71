// Package simhca simulates RDMA devices below Debian's unchanged libibverbs,
// libmlx5 and libefa, in the processes that use them: mlx5 with RC, UC, UD, DCI
// and DCT, and EFA with SRD. It is for tests of code for devices that are not
// at hand.
//
// Linked into a program (build tag simhca) or preloaded (make simhca), it stands
// between the libraries and the kernel: it stands in for /dev/infiniband, for the
// folder of devices in sysfs, and for the commands that make objects, and a
// thread of it executes what lies in the queues. A program that does not set the
// environment variable SIMHCA is unchanged. The variable lists devices, with
// options behind colons:
//
//	SIMHCA="mlx5 mlx5"     mlx5_0 and mlx5_1 with RoCE ports, which reach each other
//	SIMHCA=mlx5:ipv4       a RoCE port with an IPv4 address, 127.0.0.1
//	SIMHCA=mlx5:ib         an InfiniBand port: LIDs, and no GRH where none is asked for
//	SIMHCA=mlx5:latereads  READs are executed late, behind WRITEs and atomics without a fence
//	SIMHCA=mlx5:torn       READs and WRITEs move one cache line at a time
//	SIMHCA=mlx5@NAME       mlx5_0 of this process, which reaches the devices of all processes
//	                       of the user that name the same fabric. It lies on lo, with 127.0.0.1 or
//	                       SIMHCA_ADDRESS and ::1; rdmactl sim impairs the ways between addresses
//	SIMHCA=efa             efa_0, requests are executed in order
//	SIMHCA=efa:reverse     in the reverse order; efa:random in any
//	SIMHCA=efa:nowrite     without RDMA WRITE, as the first generation
//
// SIMHCA_TRACE=1 prints what is refused and why, SIMHCA_TRACE=2 everything.
//
// What runs on it agrees with the libraries, and with the kernel's drivers and the
// specification as they were read. Only hardware shows that firmware does:
// docs/hardware.md has a list.
package simhca
