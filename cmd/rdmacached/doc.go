// Command rdmacached is the server of a cache. It serves records to RDMA clients (package
// cache), and to programs that speak memcached's text and meta protocol over TCP.
//
//	rdmacached -config /etc/rdmacached.json
//	rdmacached -config /etc/rdmacached.json -check   # is the file right, for this host?
//
// With -check it looks at the files that the configuration names, and at the host's memory, addresses, snapshot folder
// and device, which it does not open; so does every start. The exit status is 78 if the configuration is wrong, and
// 1 if only an address or the device is missing, which may come later. With -version it prints what it was built from.
// rdmacached.service is a systemd unit, docs/cache.md a guide. Everything but "listen" is optional:
//
//	{
//		"listen": "10.77.0.2:7481",
//		"names": ["cache1:7481"],
//		"device": "",
//		"memory": "1GiB",
//		"huge_pages": "if there are any",
//		"max_value": "1MiB",
//		"lease": "5s",
//		"snapshot": "/var/lib/rdmacached/snapshot",
//		"key": "/etc/rdmacached/cache.key",
//		"clients": 1000,
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
// The device is by default that of the address in "listen"; without one the daemon does not start.
//
//   - "names" are the server's addresses as clients write them, beside the IP address. A client that
//     has written another one is refused: its name leads to the wrong server. Without names,
//     clients are refused that come through a relay or another translation of the address.
//   - "memory" is for records, by default 64 MiB. The map needs 56 to 112 bytes more for each
//     record. "huge_pages" is "no" (the default), "yes" or "if there are any".
//   - "max_value" is the longest value, at most 64 MiB. By default a record of header, key
//     and value has 2 MiB at most, or a quarter of "memory" if that is less.
//   - "key" is a file. RDMA clients have to prove that they have its content, without surrounding
//     space: at least 16 bytes. Without a key every client is admitted.
//   - "snapshot" is a file that the daemon writes when it ends, in a folder that must exist.
//   - "clients" is how many RDMA clients there may be at a time, with a key; by default any number.
//   - "dc" makes a target by which clients READ that have no queue pair here, "responders" of them at a time; by default none.
//   - "users" of the gateway is a file with a line "name:password" for each user; clients then have
//     to give one. With a certificate the gateway speaks TLS 1.3 only.
//   - "metrics" is the address of Prometheus's /metrics, of /healthz, and of rdmactl cache.
//   - "log" is "debug", "info", "warn" or "error". Logs go to standard error.
//
// # Tenants
//
// Instead of "key", "snapshot" and "clients" there can be tenants, each with records of its
// own. "memory", "max_value" and "dc" apply to each of them, unless a tenant has its own:
//
//	"tenants": {
//		"shop": {"key": "/etc/rdmacached/shop.key", "memory": "1GiB", "clients": 100}
//	}
//
// A tenant must have a key. "tenant" beside the gateway's "listen" names the gateway's tenant.
//
// # A cluster
//
// Members of a cluster share the keys by a table in etcd, and servers join and leave while it serves (package
// cluster). Clients name one or more of them ([github.com/goverbs/goverbs/cache.DialCluster]), and learn of the others:
//
//	"cluster": {"name": "prod", "id": "h1", "etcd": ["http://10.77.0.2:2379"], "advertise": "10.77.0.2:7481",
//		"weight": 1, "zone": "a", "ttl": "3s", "drain": "4m", "ca": "", "certificate": "", "certificate_key": "", "user": "", "password": ""}
//
// "id" names this server for good, and "advertise" is its address for clients and other members. All members need the same
// "key"; a changed key file applies to a member's own connections after a restart. "weight" is its part of the keys, by default
// 1; "drain" is how long a server that ends may take to hand over its keys. When a server is silent for 1.1 "ttl" the others take
// over its keys, without records. "ca", "certificate", "certificate_key" and "password" are files, for an etcd with https and
// users. There can be no tenants, snapshot or gateway. docs/cluster.md has more, such as "rdmacached drain" and "undrain".
//
// # Signals
//
// SIGHUP has key files and the gateway's files read again, not the configuration itself. A changed
// key applies to later connections. If a file is missing or wrong, the old content stays in use, and
// that is logged. If a tenant's file has the word "revoked" in place of a key, the tenant is revoked,
// unless it is the gateway's: its clients are cut off, and its records are gone, also those of a snapshot
// that the next start finds. With a key in the file the tenant comes back at the next SIGHUP.
//
// SIGTERM and SIGINT shut the daemon down in order. The gateway takes no more connections, and
// carries out the commands that have arrived, for at most ten seconds. Then RDMA clients are cut off;
// they connect again when there is a server again. Then the records are written to the file in
// "snapshot", and the next start loads them: values, flags, CAS numbers, and the time they have left,
// less the time between.
//
// A snapshot is loaded only once, so after a crash the cache is empty. It is also empty if the snapshot is damaged or has
// another format; that is logged as an error, and the file stays, as .taken, .taken.1 and so on. The daemon does not
// start, and -check fails, if the snapshot could not be written. Do not restore old ones: values may have changed.
//
// # A proxy
//
//	rdmacached proxy -server 10.77.0.2:7481 -listen /run/cache.sock
//
// A proxy speaks memcached's protocol for a program that knows nothing of RDMA, on a unix socket or
// an address (by default 127.0.0.1:11211), and is itself an RDMA client of servers. Hits of get, gets
// and bget are READs; everything else is an RPC, a message to the server and its reply. A command that
// takes longer than -timeout (by default a second) and an eighth of it ends with SERVER_ERROR. The proxy
// reconnects to a server that comes back, but it does not start without one. With several servers, -server a,b,c,
// each has a share of the keys: members of a cluster say which, and one of them is enough.
//
//   - -from is the address of this host to connect from.
//   - -tenant and -key (a file) authenticate the proxy to the servers.
//   - -map limits the memory of the map of each server. Other keys are looked up in the server's map by READ.
//   - -max is the longest item, like memcached's -I: a MiB by default, whatever "max_value" is.
//   - -rdma rules out TCP. Without it, everything is an RPC by TCP where there is no RDMA.
//   - -metrics is an address for Prometheus's /metrics, and for /healthz, which returns 503 without a
//     connection to a server.
//
// # Security
//
// Traffic between RDMA clients and the server is neither encrypted nor signed: "listen" should be on
// a network where hosts do not send in each other's name.
package main
