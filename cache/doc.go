// Package cache is the client of a distributed cache in which a hit is an RDMA READ.
//
// A server keeps records in registered memory, and a hash map that says where they are. A
// client receives the map, looks a key up in its own copy, and READs the record: the
// server's processor takes no part in a hit. In a large fleet, where copies of the map cost
// more than they save, clients READ the server's map instead. Everything that changes the cache is
// an RPC: a request to the server, and its reply.
//
//	client                                        server
//	  ◀──────────────── full sync, then deltas ─── hash map
//	  look up: region, offset, length, version
//	  READ ────────────────────────────────────▶  record (the NIC responds)
//	  check: alive, key, version, epoch, checksum
//
//	  set, delete, increment, ... ──────────────▶ new record, and a tombstone in the old one
//	                                              that leads to it
//	  ◀────────────────────────────────── reply   and a delta for every client
//
// A client may be used by any number of goroutines:
//
//	c, err := cache.Dial(ctx, "10.77.0.2:7481", cache.Config{})
//	defer c.Close()
//	err = c.Set(ctx, []byte("colour"), cache.Item{Value: []byte("blue")}, time.Hour)
//	it, err := c.Get(ctx, []byte("colour")) // one READ
//	results := c.GetMulti(ctx, keys, nil)   // one doorbell, unless they are long
//	errs := c.SetMulti(ctx, puts, nil)      // all under way together
//
// A client of a tenant, which proves the tenant's key, keeps at most 64 MiB of the map,
// and does not fall back to TCP:
//
//	c, err := cache.Dial(ctx, address, cache.Config{Tenant: "shop", Key: key, MapBytes: 64 << 20, RequireRDMA: true})
//
// A client of many servers, and a loader for what is missing:
//
//	c, err := cache.DialCluster(ctx, []string{"10.77.0.2:7481", "10.77.0.3:7481"}, cache.ClusterConfig{})
//	l := cache.NewLoader(c, cache.LoaderConfig{})
//	it, err := l.Load(ctx, key, time.Hour, func(ctx context.Context) (cache.Item, error) { ... })
//
// The server is package [github.com/goverbs/goverbs/cache/server], or the program rdmacached,
// which also speaks memcached's protocol (package [github.com/goverbs/goverbs/cache/gateway]):
// programs with a memcached client need no Go. docs/cache.md says how to run it, with tenants,
// an initiator of package dc, and large maps.
//
// # Guarantees
//
// A record is immutable while clients may READ it, and has the full key, the version, the
// epoch and a checksum (XXH3) over all of it. A change writes a new record, turns the old one
// into a tombstone, enters the new one into the map, and then replies.
//
//   - No value is torn. Freed memory is reused only when no READ of its last record can be under
//     way. Should one be under way all the same, the checksum refuses it, except with a chance
//     of 1 in 2^64. Long values, which are READ in parts, are no exception.
//   - A READ that begins after a change was acknowledged does not see the record from before,
//     however old the client's map is: single keys are linearizable, for READs and RPCs
//     together. Evictions count as deletions.
//   - A miss in the client's map is not final: the client asks the server or, if the map is not
//     whole, READs the server's own map.
//   - A record that has expired by the server's clock is not a hit.
//   - FlushAll is acknowledged when no client can READ a record that was there. Until then a READ
//     may find one. FlushAll deletes each key, but not all at one moment, and a key
//     that one client has found to be gone is gone for all.
//   - After a restart of the server nothing of its earlier life is a hit: pointers, records and
//     messages carry the server's epoch, which changes. CAS numbers of an earlier life do not
//     match either. A server with a snapshot (Snapshot in the Config of package server) keeps its
//     records across an orderly shutdown: values, flags, CAS numbers, and the time they have
//     left, less the time between. After a crash, or if the file is damaged, the cache is empty.
//   - A change without a reply is not repeated; its error matches [ErrOutcomeUnknown]. Reads are
//     repeated, over a new connection if need be, until their context ends, or, with FailFast,
//     until there is no connection.
//   - A method with a context that has ended does nothing. If the context ends later, it
//     returns at once. Its READs go on without it, in memory of the client's own; after a second
//     of silence the connection is given up.
//   - While the server's process hangs, hits go on, and everything else waits. While the server's
//     host is unreachable no operation succeeds: a key has one server, and no replica.
//   - A client that hangs delays the reuse of memory for one lease at most (five seconds by
//     default); then the server cuts it off, and from the second time on lets it READ again
//     only after a pause. Changes that find too little memory meanwhile wait
//     a moment and are then refused with [ErrNoMemory].
//
// The guarantees hold in a [Cluster] for clients with the same list of servers, for each key by
// itself: GetMulti and SetMulti are many operations, and FlushAll goes server by server. They hold
// by TCP too, which a client uses without RDMA unless RequireRDMA is set; everything is then an RPC, and
// nothing goes on while the server's process hangs. [Stats] say so, and the Logger gets a warning.
//
// With NearBytes in [Config] a client keeps copies of records, from which Get, GetInto and GetMulti
// return without a READ. These results are not linearizable: a copy's value was current at most
// NearStale before the call began. One client's reads of a key do not go back in time, and a
// client sees its own acknowledged changes. CompareAndSwap with a copy's CAS number is as safe as
// ever. Two clients may see changes in different orders for as long as NearStale.
//
// With a key, client and server prove to each other that they have it, and it does not cross the
// wire. What follows is neither encrypted nor signed. Tenants of one server have memory in
// protection domains of their own: the device refuses one tenant's requests for another's memory.
//
// # Costs
//
// A hit is one READ. It takes no lock for longer than a lookup in the map, allocates nothing
// (GetInto), and copies the value once, from registered memory to the caller's. A client that has
// not yet heard of a change needs a READ more for each tombstone that it meets, two at most, and then
// one of a bucket. MapBytes in [Config] has the costs of a whole map,
// of a part of it, and of none. A near hit allocates nothing; a READ that makes a copy does.
//
// There are no replicas. No server takes over from one that is down, a cluster's list of servers does not change
// while it is open, and servers have no weights, unless they are members of one with
// a placement (package [github.com/goverbs/goverbs/cache/cluster]).
//
// The published design that the package follows is in docs/background.md.
package cache
