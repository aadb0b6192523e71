// Command rdmacached is a cache's server: it serves records to RDMA clients (package
// cache), and to programs that speak memcached's protocol over TCP.
//
//	rdmacached -config /etc/rdmacached.json
//	rdmacached -config /etc/rdmacached.json -check   # is the file right?
//
// All of the configuration but listen may be left out:
//
//	{
//		"listen": "10.77.0.2:7481",
//		"device": "",
//		"memory": "1GiB",
//		"page": "2MiB",
//		"huge_pages": "if there are any",
//		"max_value": "1MiB",
//		"lease": "5s",
//		"snapshot": "/var/lib/rdmacached/snapshot",
//		"key": "/etc/rdmacached/cache.key",
//		"clients": 1000,
//		"writable": "1MiB",
//		"shared": {"records": 1000, "size": 64, "clients": 64, "lease": "5s", "port": 7482},
//		"dc": {"responders": 64},
//		"gateway": {
//			"listen": "10.77.0.2:11211",
//			"certificate": "/etc/rdmacached/cert.pem",
//			"key": "/etc/rdmacached/key.pem",
//			"users": "/etc/rdmacached/users",
//			"connections": 1024,
//			"idle": "0s"
//		},
//		"metrics": "127.0.0.1:9481",
//		"log": "info"
//	}
//
// "page" is how much of the memory records of about one length take at a time; no record is longer, so "memory" is a
// page at least and "max_value" at most.
//
// "key" is a file whose content, less space around it, RDMA clients have to prove that they
// have: 16 bytes at least. Without it everybody is a client. "clients" is how many there may be
// at a time. "writable" is memory beside the records that clients WRITE and READ by themselves;
// without it the device refuses all WRITEs. "shared" are records that clients change by themselves
// under locks: how many there may be, the bytes of each at most (64 by default), how many clients
// may use them at a time (64), how long one may be silent before its locks are given to others (as
// long as "lease"), and the port, beside that of "listen", at which they connect for them (any).
// "dc" has a target through which clients READ that have no queue pair here, and how many contexts of
// theirs may at a time; there is none by default. In the place of these, and in that of "snapshot",
// there can be tenants, who share nothing but the address; "dc" is for each of them what it is for
// all, unless it has its own:
//
//	"tenants": {
//		"shop": {
//			"key": "/etc/rdmacached/shop.key",
//			"memory": "1GiB",
//			"max_value": "1MiB",
//			"snapshot": "/var/lib/rdmacached/shop",
//			"clients": 100,
//			"writable": "64KiB",
//			"shared": {"records": 100}
//		}
//	}
//
// The key may not be left out, and with "shared" it stays as it is while the daemon runs. The gateway is one tenant's then: "tenant", beside its "listen".
// SIGHUP has the files of keys read again: another key is for connections that come later, and
// a tenant whose file is gone is revoked, unless it is the gateway's: its clients are cut off,
// and its records are gone. With another file it comes back at the next SIGHUP.
//
// The device is that of the address to listen on. The file of users has a line
// "name:password" for each; with it, clients of the gateway have to say one. With a
// certificate the gateway speaks TLS 1.3 only. SIGHUP has the files of the gateway read
// again, for connections that come later; what is wrong with them is logged, and changes
// nothing. At "metrics" there are Prometheus's /metrics, /healthz, and /status, which
// rdmactl cache shows. Logs go to standard error.
//
// SIGTERM and SIGINT end it in peace: the gateway takes no more connections and carries
// out the commands that have arrived, for at most ten seconds; then RDMA clients are cut
// off, which connect again when there is a server again. Then the records are written to
// the file of "snapshot", from which the next life takes them: values, flags, CAS numbers
// and how long they have to live, the time between included. A snapshot is taken once, so
// after a crash the cache is empty. So it is after one that is damaged, which is logged as
// an error and left beside the file with the ending .taken. Do not bring back old ones:
// their values may have changed since.
//
//	rdmacached proxy -server 10.77.0.2:7481 -listen /run/cache.sock
//
// A proxy speaks memcached's protocol beside a program that knows nothing of RDMA, on a
// unix socket or an address (by default 127.0.0.1:11211), and is an RDMA client of a
// server. Hits of get, gets and bget are READs; everything else is a call. What the server
// does not answer within -timeout (a second) is a SERVER_ERROR; a server that comes back is
// found. -from is the address of this host to connect from. -tenant and -key (a file) say whose
// client it is. -map bounds the memory of its map: what has no place there is looked up in the
// server's by READ. -max is how long an item may be, as memcached's -I has it: a MiB by default, whatever the
// server's "max_value". Where there is no RDMA it goes by TCP, as a call each, unless -rdma is given.
// Its stats command tells what came by READ (rdma_read_hits) and by message (rdma_calls), and the
// transport; -metrics is an address for Prometheus's /metrics and for /healthz, which answers 503
// without a connection to the server.
//
// The unit rdmacached.service beside the source is for systemd, which is told when the
// daemon serves and when it ends.
//
// What RDMA clients and the server say to each other is not encrypted, and a client that was
// let in is known by its packets alone: let "listen" be on a network whose hosts are trusted
// that far.
package main
