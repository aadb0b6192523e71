// Rdmactl inspects the RDMA devices of a host: their ports, their features, the way of packets to an
// address, and what is wrong. It changes no settings, but for sim, and needs no privileges. With doctor -run it
// tries what a device can do, on objects of its own.
//
//	rdmactl [-json] COMMAND [arguments]
//
//	devices    [DEVICE...]             RDMA devices, their ports and GIDs
//	features   [DEVICE...]             what devices can, and why something is missing
//	path       [-from ADDR] ADDR       how packets reach an address
//	srd        SOCKET                  peers and paths of a running endpoint of package srd
//	cache      ADDR:PORT...            servers of a cache: hits, memory, connections
//	sim        FABRIC [FROM TO EFFECT... | clear]
//	                                   impairments between simulated devices
//	doctor                             what is wrong with RDMA on this host, and what helps
//	doctor     -run [-addresses] [DEVICE [PEER]]
//	                                   a self-test of a device
//
// Each command prints text in columns. With -json, before or after the command's name, it prints one
// JSON value; rdmactl -version prints what it was built from. The exit status is 0, 1 for a failure or when
// doctor found a problem or something wrong, and 2 for a wrong command line. A host without RDMA fails doctor alone.
//
// # Reliable datagrams
//
// A program that sets srd.Config.Monitor to the path of a unix socket serves queries there:
//
//	$ rdmactl srd /run/ask.sock
//	endpoint 10.77.0.1/0x11 of process 412: 2103 packets sent, 31 of them again, 1790 received; 0 messages delivered, 0 refused; 34 timers ended, 1 paths retired, 0 revived
//
//	PEER            PATH  STATE    ROUND TRIP  LEAST  LOSS   SENT  UNDER WAY
//	10.77.0.2/0x11  0     used     312µs       205µs  0.0%   1021  0
//	10.77.0.2/0x11  1     retired  298µs       211µs  27.4%  114   0
//
// A suspect path has not responded lately and is probed; messages take other paths.
//
// # A cache
//
// Each rdmacached serves its status at the address of its metrics:
//
//	$ rdmactl cache 10.77.0.2:9481
//	SERVER          STATE    UP      ITEMS  MEMORY  USED   QUARANTINE  EVICTED  HIT RATE  READS TOLD  TRANSPORT
//	10.77.0.2:7481  serving  1h2m3s  8120   64 MiB  25.0%  0.1%        7        75.0%     41          3 RDMA (rxe1), 12 memcached by TLS with passwords
//
// A daemon with tenants has a row for each. The hit rate is that of RPCs, including the gateway's, and of the sample of
// hits that RDMA clients report. A server that does not reply within five seconds is a failure; the others are shown.
//
// # Simulated devices
//
// A fabric of simulated devices (docs/simhca.md) has rules for the ways between their addresses. Effects are delay=1ms,
// rate=10Gbit, loss=10% and cut; a rule without effects ends the one for its way.
//
// # The way to another host
//
//	$ rdmactl path 10.77.0.2
//	destination  10.77.0.2
//	device       rxe0
//	...
//	neighbour    reachable
//	rdma mtu     4096
//
// The RDMA MTU is the largest that route, netdev and port carry; the kernel takes 96 bytes off a
// netdev's MTU for headers. If the neighbour is unknown, an empty UDP datagram to the discard port
// makes the kernel ask for it. When there is no way, the message says why:
//
//	$ rdmactl path 10.77.0.3
//	rdmactl: verbs: resolve the path to 10.77.0.3: next hop does not answer (10.77.0.3 on eth0 is failed)
//
// # What is wrong
//
//	$ rdmactl doctor
//	problem: rxe0 port 1: link down: its netdev eth0 is down
//	    remedy: ip link set eth0 up
//	advice: rxe0 port 1: the MTU of eth0 is 1500, which limits the RDMA MTU to 1024 of 4096
//	    remedy: ip link set eth0 mtu 4200, and the same on switches and peers
//	devices: 1, problems: 1, advice: 1
//
// A problem is something that does not work; advice is about something that works less well than it
// could. Doctor looks at
//
//   - modules, cards, devices: the kernel's RDMA modules, PCI cards without their driver, and
//     whether there is a device in this network namespace
//   - files, provider: /dev/infiniband/uverbsN, and libibverbs' library for the device
//   - namespace, link, gid, mtu: netdev down or elsewhere, no subnet manager, no RoCE v2 GID,
//     MTUs that are too small or differ
//   - memlock, nofile: how much memory may be locked, how many files be open
//
// With -json it also prints the facts by which it judged: send these along with a question. The
// limits are those of rdmactl itself, so start it as the program in question is started.
//
// # What works
//
//	$ rdmactl doctor -run rxe0
//	device: rxe0 port 1, rxe (in-tree), firmware 0.0.0
//	kernel: 6.1.0-50-amd64, rdma-core: 44.0, link: Ethernet, MTU 4096
//	FEATURE                            RESULT     TIME     NOTE
//	protection domain                  works      89.5ms   -
//	SEND, RECV, immediate              works      99.4ms   -
//	...
//	works: 29, refused: 19, WRONG: 0, not tried: 1
//
// The self-test tries the features of docs/features.md one after the other, through package verbs,
// and compares what arrives with what was sent. Refused: the device or its provider lacks the
// feature and says so. WRONG: the feature failed, its data were wrong, or the device reports it and
// then refuses it; the exit status is then 1. Not tried: something else is missing, such as an
// address, or room below a resource limit.
//
// DEVICE may end with a port, as in mlx5_0:1; by default it is the first active one, of $RDMA_DEVICE if that is set.
// PEER names another port that it reaches. A run takes a minute at most, and uses only objects of its own.
//
// With -json it prints a report to send in: device, features, versions, GIDs and all results.
// Addresses are left out, also from messages, unless -addresses is given.
//
// # What there is
//
//	$ rdmactl devices
//	DEVICE  DRIVER  FIRMWARE  FILE                     USABLE  PORT  STATE   LINK      MTU   MAX MTU  NETDEV  NETDEV MTU
//	rxe0    rxe     -         /dev/infiniband/uverbs0  yes     1     active  Ethernet  4096  4096     eth0    4200
//	...
//
// Counters, and which process holds which object, are shown by iproute2: "rdma statistic" and "rdma resource".
package main
