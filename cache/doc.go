// Package cache is the client of a distributed cache in which a hit is an RDMA READ.
//
// A server keeps records in registered memory, and a hash map that says where they are. A
// client receives the map, looks a key up in its own copy, and READs the record: the
// server's processor takes no part in a hit. Everything that changes the cache is a call:
// a message to the server.
//
//	client                                        server
//	  ◀──────────────── snapshot, then deltas ──── hash map
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
// The server is package [github.com/goverbs/goverbs/cache/server], or the program
// rdmacached, which also speaks memcached's protocol (package
// [github.com/goverbs/goverbs/cache/gateway]). A program with a memcached client needs no
// Go. It connects to the server's gateway, port 11211 below, or to a proxy on its own
// host, where a hit of get is a READ:
//
//	rdmacached -config rdmacached.json  # {"listen": "10.77.0.2:7481", "gateway": {"listen": "10.77.0.2:11211"}}
//	rdmacached proxy -server 10.77.0.2:7481 -listen 127.0.0.1:11211
//
// # Guarantees
//
// A record is immutable while clients may READ it. It describes itself: it has the full
// key, the version, the epoch, and a checksum (XXH3) over all of it. A change writes a
// new record into a free slot, turns the old one into a tombstone by one store of eight
// bytes, enters the new one into the map, and then replies. From that follows:
//
//   - No value is torn. A READ fetches cache lines one at a time, in any order, and some
//     of them again when a response is lost. So a slot is reused only when no READ of its
//     last record can be under way (see Quarantine). Should one be under way all the
//     same, the checksum refuses it, except with a chance of 1 in 2^64.
//   - A READ that begins after a change was acknowledged does not see the record from
//     before, however old the client's map is. It finds the tombstone, which leads to the
//     new record. If the key was deleted, or one tombstone leads to the next for too
//     long, the client READs the buckets of the server's own map that say what became of
//     the key, as for a miss. The value of a READ was current when the READ fetched the
//     first eight bytes of the record. So single keys are linearizable, for READs and
//     calls together. Evictions count as deletions.
//   - A miss in the client's map is not final: the client asks the server. With
//     MapBytes and a map that is not whole it READs the server's own map instead: the one or
//     two buckets in which the key has to be. An entry stays in its bucket until it is
//     deleted, and is there before a change is acknowledged. So if neither bucket has
//     one, there was no record at some moment while they were READ. The checksum refuses
//     a bucket that changes meanwhile, except with a chance of 1 in 2^64, and the client
//     READs it again. A bucket that has moved because the map grows is settled by a call.
//     GetMulti READs the first buckets of its keys together, then what they point at and
//     the second buckets of the others, each time by one doorbell for 32 keys.
//   - A record that has expired by the server's clock is not a hit. Each message of the
//     server carries its clock, so a client knows two times between which the server's
//     clock is. Once the later one is past the record's expiry, the client asks the
//     server.
//   - FlushAll is acknowledged when no client can READ a record that was there. Each
//     client has said that it has left the flush behind, or was cut off, which takes a
//     lease at most; or all of the records have become tombstones, which the server makes
//     of them beside other work. Until then a READ may find a record that a flush under
//     way has yet to reach. It goes key by key: it deletes each key, but not all at one
//     moment, and a key that one client has found to be gone is gone for all.
//   - Each pointer, record and message carries the server's epoch, which changes with a
//     restart. A client accepts nothing of another epoch than its map's. A CAS number of
//     an earlier life of the server does not match one of this life either: CAS numbers
//     begin with the server's date, in ns.
//   - A server with a snapshot (Snapshot in the Config of package server) keeps its
//     records across an orderly shutdown: values, flags, CAS numbers, and the time they
//     have left, less the time between. The snapshot is written when no client can change
//     anything any more, and used once: nothing comes back that an acknowledged call had
//     changed or removed. After a crash, or if the file is damaged, the cache is empty.
//     The epoch and the versions are new in any case: clients can use nothing from the
//     server's earlier life and fetch the map anew.
//   - A change without a reply is not repeated; its error matches [ErrUnknown]. Reads
//     are repeated, over a new connection if need be, until their context ends, or, with
//     FailFast, until there is no connection.
//   - A call with a context that has ended does nothing. If the context ends later, the
//     call returns at once. Its READs go on without it, in memory of the client's own; after a
//     second of silence the connection is given up. A WRITE of WriteAt may still be
//     executed then.
//   - While the server's process hangs, hits go on, and everything else waits. While the
//     server's host is unreachable no operation succeeds: a key has one server, and no
//     replica.
//
// A hit takes no lock for longer than a lookup in the map, allocates nothing (GetInto),
// and copies the value once, from registered memory to the caller's.
//
// # Long values
//
// A record, or what GetMulti READs together, that is longer than PaceFrom in [Config] is
// READ in parts. Each part waits for credit from a
// [github.com/goverbs/goverbs/pacer.Pacer]: the device's, which all clients of the
// process share, or the one in [Config]. So all of them together ask for no more than the
// network interface absorbs. The response to a short GET, which is not paced, waits
// behind that much, and not behind every long value that is wanted. GETs share the credit
// part by part.
//
// Nothing else changes. The record's first eight bytes, which say whether it is alive,
// come with the first part. Its slot is not reused before the last part has come. The
// checksum covers all parts.
//
// # Many servers
//
// A [Cluster] assigns each key to one server by rendezvous hashing of the servers'
// addresses, as they are written. Clients with the same list have all the guarantees of
// that server's client. Clients with different lists look for some of the keys in
// different places, and see different records there.
//
// A server that is down does not affect the keys of the others. Its own keys fail at once
// with [ErrUnavailable], or, by choice, their reads are misses. It comes back empty, so
// nothing from before is a hit. Nothing covers several keys: GetMulti and SetMulti are
// many operations, and FlushAll goes server by server. The hash has no secret, so a
// program that chooses keys can choose their server.
//
// # Near cache: bounded staleness
//
// With NearBytes in [Config] a client keeps copies of records that it READ, from which
// Get, GetInto and GetMulti return without a READ. These results are not linearizable.
// Instead:
//
//   - A copy's value was current at most NearStale before the call began, to the
//     millisecond. A copy is used only while the map has the record's entry, that is,
//     until the delta of a change arrives: usually within 50 ms, with many clients within
//     a sixteenth of the lease. It is used only while the server was heard lately: the
//     server must have reported all changes up to a time of its own clock that is less
//     than NearStale ago, however far the clocks may have drifted apart. When a server is
//     silent or out of reach, copies are not used, and READs go on.
//   - One client's reads of a key do not go back in time: a read that finds a record
//     gone drops its copy.
//   - A client sees its own acknowledged changes.
//   - CompareAndSwap with a copy's CAS number is as safe as ever: the server compares.
//
// Two clients with near caches may see changes in different orders for as long as
// NearStale. A near hit allocates nothing; a READ that makes a copy does.
//
// # Loader
//
// In one process, a [Loader] has one load under way for each key. A load is cancelled
// when its last waiter leaves, and not before. Errors are not kept, except for
// ErrorTTL. The item is stored with Add, so a load never overwrites what was stored while
// it ran. It may store an item that is older than a deletion that happened meanwhile: the
// loader has no lease on the key.
//
// # Quarantine
//
// A freed slot is reused when every client has said that it applied the delta that freed
// it, and that its READs from before have ended. A client that does not say so within the
// lease (by default five seconds) is cut off: the server destroys its queue pair, after
// which the NIC executes none of its READs. So quarantine lasts at most one lease, as long
// as the server's process runs. When too much memory is in quarantine, changes wait a
// moment and are then refused with [ErrNoMemory]; nothing is reused early.
//
// For clients with an initiator (DC in [Config]) the slots wait for something else: see
// below.
//
// # Through an initiator
//
// A client with an initiator of package [github.com/goverbs/goverbs/dc] READs through the
// target of a server that has one (DC in the Config of package server), and has no queue
// pair there. Calls, and the server's own messages, go by TCP. All guarantees hold.
//
// A target serves all that know it, so the server cannot cut off one late client by
// destroying its queue pair. It makes another target, tells the clients that are not
// late, and destroys the old one; then it reuses the slots that the late client could
// READ. The same happens if a client's connection ends without a goodbye, which a client
// sends when its READs have ended. A READ that fails meanwhile becomes a call. A
// WRITE ([Client.WriteAt]) that was under way when the target was closed may or may not
// have been made ([ErrUnknown]).
//
// The server's first message, and each that names a target, is sealed, as is what each
// side says of its queue pairs (see Tenants); other messages by TCP are not. A target's
// key crosses the wire when an initiator attaches. An eavesdropper can then READ, and
// WRITE, what this tenant's clients can, until the target is replaced.
//
// # Tenants
//
// A server with a key admits clients that have it. Client and server prove it to each other
// by an HMAC over fresh random numbers of both: the key does not cross the wire, and what
// is heard there cannot be used again, neither with the same server nor with another.
//
// Package server can have several tenants at one address, each with a key, memory, a map
// and limits of its own. Each tenant's memory is in a protection domain in which the
// others have no queue pair: the device refuses their requests even if they know its
// addresses and rkeys. It is READ only, except for a region that a tenant opts into
// (Writable in the Config of package server). The tenant's clients WRITE and READ that
// one as they like ([Client.WriteAt], [Client.ReadAt]); other tenants' clients do not.
// When revoking a tenant returns, its clients are cut off, its memory is deregistered,
// and its key is refused.
//
// The server creates no RDMA objects for a client that has not yet proved its key. At
// most 64 connections wait to do so, each with memory of a fixed size, for five seconds
// at most, or two when others want their place. Admitted clients connect by RDMA a few at
// a time, in the order in which they came, and the others are told to wait: all together
// would take so long that each gives up.
//
// An attacker between a client and its server could pass on their messages until both
// have proved the key, and then go on alone. The server would connect its queue pairs to
// the attacker's, which would READ the tenant's records; or the client would take the
// attacker's replies for the server's. So what each side says of its queue pairs has a
// seal: numbers, addresses and first packet numbers, the memory that is offered, the
// epoch. The seal is an HMAC with a key that is derived from the tenant's key and all
// that was said in this greeting, with another label for each side. It is of no use on
// another connection, nor to the side that made it. A side that finds a wrong seal
// connects no queue pair for READs, accepts no message, and does not try TCP instead.
//
// The seal does not prevent everything. An attacker on the path may keep RDMA from
// working, so that a client without RequireRDMA uses TCP, where nothing is sealed. What
// follows is neither encrypted nor signed: an attacker that can change packets on the
// path, or send in a client's name, can do what that client can. Clients of one tenant
// see all of its keys, and may change all of them.
//
// # Shared records
//
// A server that opts in (Shared in the Config of package server) has a target of package
// [github.com/goverbs/goverbs/lockoffload] beside its records, with memory of its own in
// a protection domain of its own. [Client.Shared] names a record there. The client asks
// the server once where it is. After that clients change it under a lock in that memory,
// in two round trips without the server's processor, even while its process is stopped.
// They read it by one READ that never shows half of a change. Changes of one record are
// linearizable. If a client dies, what package lockoffload promises of dead lock holders
// holds.
//
// Shared records are not part of the cache: nothing evicts them, they end with the life
// of the server, and a snapshot does not have them. The key for them derives from the
// tenant's key and the server's epoch, so a record that was found in one life of the
// server is not looked for in the next.
//
// # Transport
//
// If the server can be reached and admits a client, but not by RDMA, the client connects
// by TCP, unless RequireRDMA is set. All guarantees hold, but everything is a call, so
// nothing goes on while the server's process hangs. [Stats] say so (Transport, and the
// reason in Instead), and the Logger gets a warning. A client that cannot use its
// initiator falls back to RDMA in the same way.
//
// The client tries a better way every RetryRDMA, and changes over without an error,
// unless an operation begun before takes longer than ten seconds. Near copies then
// begin anew: the first is used NearStale after all of that has ended.
//
// # What is not built
//
// There are no replicas, and no server takes over from one that is down. A cluster's
// list of servers does not change while it is open, and servers have no weights. A client
// with a bounded map still receives all changes. Loaders of several programs do not
// wait for each other. Hot keys are shown by rdmactl, but not spread over servers.
//
// # The claim of US 9,378,179
//
// The patent's first claim, element by element, and the device test that shows it.
//
//	server with records in a cache in memory   server.Listen            TestCalls
//	client receives the hash map               session.receive          TestSnapshotAndDeltas
//	one or more entries for a key              table.Candidates         TestSeveralCandidates
//	entry has a server-side remote pointer     wire.Entry               TestEntry
//	client looks up the pointer by the key     mirror.Lookup            TestLookup
//	client accesses the record by RDMA         session.try              TestHitIsOneREAD
//	without software of the server             session.try              TestHitsWhileTheServerIsStopped
//
// And what a service needs beside it:
//
//	a hit is one READ and no SEND, counted     session.get              TestHitIsOneREAD
//	a hit allocates nothing                    session.buffer           TestGetIntoDoesNotAllocate
//	READs of many keys with one doorbell       session.readMulti        TestGetMulti
//	changes of many records share SENDs        session.setMulti         TestSetMulti
//	keys spread evenly over servers            rendezvous.Of            TestBalance
//	a new list moves the fewest keys           rendezvous.Of            TestMovement
//	a dead server costs the others nothing     Client.unavailable       TestClusterOutlivesAServer
//	a server that hangs holds up its own keys  Cluster.fan              TestClusterWithAServerThatHangs
//	all servers are asked at once              Cluster.fan              TestClusterAsksAllAtOnce
//	one load for all callers that miss         Loader.fly               TestSingleFlight
//	loads outlive callers that give up         Loader.leave             TestLoadOutlivesItsCaller
//	a copy is stale no longer than allowed     mirror.Holds             TestNearCacheUnderChanges
//	a near hit needs no READ, and no memory    session.nearby           TestNearHitDoesNotAllocate
//	a client imports no etcd, gRPC or server   Client.get               TestCacheClientIsLight
//	long values in parts, as there is credit   flow.credit              TestLongValuesInParts
//	no part of them is torn or stale           flow.record              TestLongValuesUnderChanges
//	short GETs do not wait behind long ones    session.readInto         TestShortGETsBesideLongOnes
//	a miss is confirmed                        session.ask              TestHitIsOneREAD
//	what has changed is found by READs         session.follow           TestChangedRecords
//	a tombstone leads to the next record       wire.Forwarded           TestTombstonesLeadToNoOtherRecord
//	and the last ones to what is alive         Store.lead               TestTombstoneLeads
//	no torn and no stale values                session.try              TestWritersReadersEvictors
//	expiry by the server's clock               mirror.Weigh             TestExpiry
//	a client survives the server's restart     Client.keep              TestServerIsKilledAndComesBack
//	a gap means a new snapshot                 store.Deltas             TestGapMeansANewSnapshot
//	clients that hang are cut off              store.Late               TestLateClientIsCutOff
//	hostile clients harm only themselves       Server.take              TestHostileClients
//	a value that is too long ends nothing      session.queue            TestValuesThatAreTooLong
//	a quiet client costs the server little     inbox.takeAll            TestServerHasLittleOfAQuietClient
//	a miss and a hit by READs of buckets       session.probe            TestHitByBuckets
//	many keys by READs of buckets              session.looked           TestHitByBuckets
//	buckets during changes and map growth      Probe.Read               TestBucketsUnderChanges
//	what a bucket has is kept if it is valid   Mirror.Adopt             TestAdopt
//	clients prove the key without sending it   Server.Proved            TestProofsAreGoodOnce
//	a wrong key is refused                     door.greet               TestTenantsKeepStrangersOut
//	another's greeting is not taken over       link.Join                TestNobodyTakesOverAGreeting
//	the device refuses another tenant's rkey   Tenants.Admit            TestTenants
//	clients WRITE only the writable region     Client.WriteAt           TestWritableRegion
//	clients change records without the server  Shared.Update            TestSharedRecords
//	even while it is stopped, for one life     greet.SharedKey          TestSharedRecordsWithoutTheServer
//	each tenant has its own shared records     SharedConfig.Records     TestSharedRecordsOfTenants
//	shared records by name, in a cluster       Cluster.Shared           TestSharedRecordsOfACluster
//	a revoked tenant's pointers are of no use  Tenants.Revoke           TestRevokedTenant
//	silent connections keep no client out      door.greet               TestDoorBesideSilentConnections
//	clients connect a few at a time            turns.take               TestClientsConnectInTurn
//	128 at once, and 1,000 in all, have RDMA   turns.take               TestCrowd
//	a hit through an initiator is one READ     session.readOne          TestHitThroughAnInitiatorIsOneREAD
//	the server seals what it says of a target  session.readTarget       TestTargetIsSealed
//	many keys and long values, too             through.start            TestManyAndLongThroughAnInitiator
//	servers cost a client no queue pair        session.dialThrough      TestManyServersThroughOneInitiator
//	a late client READs nothing any more       Server.replaceTarget     TestLateClientsReadNothingThroughTheTarget
//	a client that may READ is not forgotten    Fence.Closed             TestNobodyReadsWhoIsForgotten
//	a client that closes holds up nothing      Server.leave             TestGoodbyeThroughAnInitiator
//	without READs there, another way is used   Client.connect           TestAnotherWayThanTheInitiator
//	and it comes back, no request is lost      Client.replace           TestBackToTheInitiator
//	WRITEs go there too, but to no record      session.writeOne         TestWritesThroughAnInitiator
//	a host that is gone is detected            link.NewStream           TestOnHostsServerBehindAnInitiatorIsKilled
//	hits through it do not need the server     session.readOne          TestHitsThroughAnInitiatorWithoutTheServer
//	TCP where there is no RDMA, visibly        Client.connect           TestWithoutRDMA
package cache
