// Rdmactl inspects the RDMA devices of a host: which there are, what they can do, which way
// packets take, and what is wrong. It changes no settings and
// needs no privileges. With doctor -run it tries what a device can do, on objects of its own.
//
//	rdmactl [-json] COMMAND [arguments]
//
//	devices    [DEVICE...]             RDMA devices, their ports and GIDs
//	features   [DEVICE...]             what devices can, and why something is missing
//	path       [-from ADDR] ADDR       how packets reach an address
//	srd        SOCKET                  peers and paths of a running endpoint of package srd
//	cache      ADDR:PORT...            servers of a cache: hits, memory, connections
//	doctor                             what is wrong with RDMA on this host, and what helps
//	doctor     -run [-addresses] [DEVICE [PEER]]
//	                                   a self-test of a device
//
// Each command prints text in columns. With -json, before or after the command's name, it
// prints one JSON value. The exit status is 0, 1 for a failure or when doctor found a
// problem or something wrong, and 2 for a wrong command line. A host without RDMA is a
// failure only for doctor.
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
//	SERVER          HOT KEY       OF GETS
//	10.77.0.2:7481  "front page"  25.4%
//
// A daemon with tenants has a row for each tenant. Clients without RDMA are connected by
// TCP, and everything they do is a call. A key is hot if it has more than one in 64 of
// the gets that find something, by a sample of READs and calls.
//
// The hit rate is that of calls, including the gateway's. The server does not see the
// hits of RDMA clients, which report a sample (one in 16). A server that does
// not answer within five seconds is a failure; the others are still shown.
//
// # The way to another host
//
//	$ rdmactl path 10.77.0.2
//	destination  10.77.0.2
//	source       10.77.0.1
//	device       rxe0
//	port         1
//	gid          ::ffff:10.77.0.1
//	gid index    1
//	gid type     RoCE v2
//	netdev       eth0
//	next hop     10.77.0.2
//	mac          52:54:00:77:00:02
//	neighbour    reachable
//	rdma mtu     4096
//	port mtu     4096
//	netdev mtu   4200
//
// The RDMA MTU is the largest that route, netdev and port carry; the kernel takes 96
// bytes off a netdev's MTU for headers. If the neighbour is unknown, an empty UDP
// datagram to the discard port makes the kernel ask for it. When there is no way, the
// message says why:
//
//	$ rdmactl path 10.77.0.3
//	rdmactl: verbs: resolve the path to 10.77.0.3: next hop does not answer (10.77.0.3 on eth0 is failed)
//	$ rdmactl path 127.0.0.1
//	rdmactl: verbs: resolve the path to 127.0.0.1: netdev without an RDMA device (lo; netdevs with one: h0 (rxe0), h1 (rxe1))
//
// Programs get the same from package verbs: ResolvePath, LookupAddr, LookupNetdev.
// Package verbs/netpath has what is known without opening a device. A VLAN, bond or
// macvlan is found by what it is stacked on.
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
// A problem is something that does not work; advice is about something that works less
// well than it could. Doctor looks at
//
//   - modules: RDMA in the kernel, ib_uverbs, rdma_ucm
//   - cards: PCI cards without their driver, or without its RDMA part
//   - devices: whether there is any, and in this network namespace
//   - files: whether /dev/infiniband/uverbsN exists, may be opened and is the right one,
//     which can go wrong in a container
//   - provider: whether libibverbs has the library for the device
//   - namespace: whether the device's netdev is in the same network namespace
//   - link: netdev down, no carrier, port not active, no subnet manager
//   - gid: RoCE v2 GIDs, and whether they are more than link-local
//   - mtu: netdev MTUs too small for the RDMA MTU, or that limit it, or differ
//   - memlock, nofile: how much memory may be locked, how many files be open
//
// With -json it also prints the facts by which it judged: send these along with a
// question. The limits are those of rdmactl itself, so start it as the program in
// question is started. Go programs raise their limit of open files to the hard limit by
// themselves, and so does rdmactl.
//
// # What works
//
//	$ rdmactl doctor -run rxe0
//	device: rxe0 port 1, rxe (in-tree), firmware 0.0.0
//	kernel: 6.1.0-50-amd64, rdma-core: 44.0, link: Ethernet, MTU 4096
//	FEATURE                            RESULT     TIME     NOTE
//	protection domain                  works      89.5ms   -
//	thread domain                      refused    92.4ms   verbs: allocate thread domain on rxe0: unsupported operation: operation not supported
//	completion queue, polled           works      268.8ms  READ of 64 bytes: 718µs (mean of 200)
//	SEND, RECV, immediate              works      99.4ms   -
//	READ, WRITE, WRITE with immediate  works      153.9ms  -
//	device removed while in use        not tried  -        it would take the device away from its other users
//	...
//	works: 29, refused: 19, WRONG: 0, not tried: 1
//
// The self-test tries the features of the table in docs/features.md one after the other,
// through package verbs, and compares what arrives with what was sent. Refused means that
// the device or its provider lacks the feature and says so. WRONG means that the feature
// failed, that its data were wrong, or that the device reports the feature and then
// refuses it; the exit status is then 1. Not tried means that something else is missing that
// the feature needs, such as an address, or room below a resource limit. TIME includes creating and closing all objects.
//
// DEVICE may end with a port, as in mlx5_0:1. Without a port, the first active one is
// taken; without DEVICE, $RDMA_DEVICE if that is set. Both queue pairs are on that port,
// unless PEER names another one that it reaches. A run takes seconds, and a minute at
// most. It uses only objects of its own and closes them, joins no multicast group and
// sends no foreign frames. To others it is some additional traffic, most of it inside the
// device.
//
// With -json it prints a report to send in: the device with its firmware, driver and
// features, the versions of kernel and rdma-core, the GIDs, and all results. Addresses
// are left out, also from messages, unless -addresses is given.
//
// # What there is
//
//	$ rdmactl devices
//	DEVICE  DRIVER  FIRMWARE  FILE                     USABLE  PORT  STATE   LINK      MTU   MAX MTU  NETDEV  NETDEV MTU
//	rxe0    rxe     -         /dev/infiniband/uverbs0  yes     1     active  Ethernet  4096  4096     eth0    4200
//
//	DEVICE  PORT  INDEX  TYPE     GID                   NETDEV
//	rxe0    1     0      RoCE v2  fe80::5054:ff:fe77:1  eth0
//	rxe0    1     1      RoCE v2  ::ffff:10.77.0.1      eth0
//	$ rdmactl features
//	DEVICE  FEATURE                     HAS  NOTE
//	rxe0    RDMA READ                   yes  128 outstanding as target, 128 as initiator
//	rxe0    atomics                     yes  atomic among this device's queue pairs only, not with the host's CPUs
//	rxe0    RoCE v2                     yes  2 GIDs
//	rxe0    MTU 4096                    yes  -
//	rxe0    several completion vectors  no   all completion events come to one CPU
//	rxe0    shared receive queues       yes  up to 917503
//	rxe0    SRQ resize                  yes  -
//	rxe0    memory windows              yes  types 1 and 2B
//	rxe0    on-demand paging            no   not offered by the driver
//	rxe0    send with invalidate        yes  -
//	rxe0    XRC                         no   not offered by the driver
//	rxe0    UD checksum offload         no   not offered by the driver
//	rxe0    completion timestamps       no   the device has no clock for them
//	rxe0    completion moderation       no   not offered by the driver
//	rxe0    rate limit                  no   not offered by the driver
//	rxe0    DC (dynamically connected)  no   needs an mlx5 device
//	rxe0    SRD (reliable datagrams)    no   needs an efa device
//
// Where features describes a port, it is port 1. Counters, and which process holds which
// object, are shown by iproute2: "rdma statistic" and "rdma resource".
package main
