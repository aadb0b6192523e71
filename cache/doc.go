// Package cache is the client of a distributed cache whose hits are RDMA READs.
//
// A server keeps records in registered memory and a hash map of where they are. A
// client receives the map, looks a key up in its own copy, and READs the record: the
// server's processor has no part in a hit. Everything that changes the cache is a call.
//
//	client                                        server
//	  ◀──────────────── snapshot, then deltas ──── hash map
//	  look up: region, offset, length, version
//	  READ ────────────────────────────────────▶  record (the NIC answers)
//	  check: alive, key, version, epoch, checksum
//
//	  set, delete, increment, ... ──────────────▶ new record, tombstone in the old one, which leads to it
//	  ◀────────────────────────────────── reply   and a delta for everybody
//
// A client, any number of goroutines of which may use it:
//
//	c, err := cache.Dial(ctx, "10.77.0.2:7481", cache.Config{})
//	defer c.Close()
//	err = c.Set(ctx, []byte("colour"), cache.Item{Value: []byte("blue")}, time.Hour)
//	it, err := c.Get(ctx, []byte("colour")) // one READ
//	results := c.GetMulti(ctx, keys, nil)   // one doorbell, unless they are long
//	errs := c.SetMulti(ctx, puts, nil)      // all under way together
//
// A client of a tenant's, whose key the server wants to see proved, of a map of at most 64 MiB,
// which would rather have no cache than one by TCP:
//
//	c, err := cache.Dial(ctx, address, cache.Config{Tenant: "shop", Key: key, MapBytes: 64 << 20, RequireRDMA: true})
//
// A client of many servers, and one that loads what is missing:
//
//	c, err := cache.DialCluster(ctx, []string{"10.77.0.2:7481", "10.77.0.3:7481"}, cache.ClusterConfig{})
//	l := cache.NewLoader(c, cache.LoaderConfig{})
//	it, err := l.Load(ctx, key, time.Hour, func(ctx context.Context) (cache.Item, error) { ... })
//
// The server is package [github.com/goverbs/goverbs/cache/server], or the program
// rdmacached, which speaks memcached's protocol as well (package
// [github.com/goverbs/goverbs/cache/gateway]). A program that has a memcached client needs no Go:
// it points that at the server's gateway, port 11211 below, or at a proxy on its own host, where a
// hit of get is a READ:
//
//	rdmacached -config rdmacached.json  # {"listen": "10.77.0.2:7481", "gateway": {"listen": "10.77.0.2:11211"}}
//	rdmacached proxy -server 10.77.0.2:7481 -listen 127.0.0.1:11211
//
// # Guarantees
//
// A record is immutable while clients may READ it. It says itself what it is: full key,
// version, epoch and a checksum (XXH3) over all of it. A change writes a new record
// into a free slot, then makes the old one a tombstone by one store of eight bytes, then
// enters the new one into the map, and then replies. From that follows:
//
//   - No torn values. The bytes of a READ come one cache line at a time, in any order, and
//     some of them again when an answer is lost. A slot is used again only when no READ of
//     its last record can be under way (quarantine, below). If one is all the same, the
//     checksum refuses it, except by chance of one in 2^64.
//   - A READ that begins after a change was acknowledged does not see what was there
//     before, however old the client's map is: it finds the tombstone, which says where the record is
//     that came in its place. Where it does not, as when the key was deleted, or where one tombstone leads
//     to the next for too long, the client READs the buckets
//     of the server's own map that say what became of the key, as for a miss. The value of a READ
//     was current when the READ fetched the record's first eight bytes. So single keys are
//     linearizable, READs and calls together. Evictions count as deletions.
//   - A miss in the client's map is no answer: the server is asked, or, by a client with
//     MapBytes whose map is not whole, the server's own map, by READs of the one or two buckets
//     in which the key has to be. An entry stays in its bucket until it is deleted, and is there
//     before a change is acknowledged: where neither has one, there was no record at a moment
//     while they were READ. A bucket that is changed meanwhile is refused by its checksum, except
//     by chance of one in 2^64, and READ again; one that has moved, since the map grows, is
//     settled by a call. GetMulti READs the first buckets of its keys together, then what they
//     point at and the second buckets of the others, each time by one doorbell for 32 keys.
//   - A record that has expired by the server's clock is not a hit. Each message of the
//     server has its clock, so a client knows between which two times the server is;
//     when the later one is past the record's expiry the server is asked.
//   - FlushAll is acknowledged when each record that was there has become a tombstone.
//     It goes key by key: it is a deletion of each key, not of all at one moment.
//   - Each pointer, record and message has the server's epoch, which is another one after
//     a restart. A client takes nothing of another epoch than its map's. Nor is a CAS number of
//     another life one of now: they begin with the server's date, in ns.
//   - A server that has a snapshot (Snapshot in the Config of package server) keeps its records over an
//     orderly end: values, flags, CAS numbers, and the time that they have left, from
//     which the time between is taken. It is written when no client can change anything
//     any more, and taken once: so nothing comes back that was changed or removed by a
//     call that was acknowledged. After a crash, or when the file is damaged, the cache is
//     empty. Epoch and versions are new in any case: what a client had of the last life
//     is of no use, and it begins with the map.
//   - A change that got no answer is not repeated: its error matches [ErrUnknown]. What
//     reads is repeated, with a new connection if need be, until its context ends, or,
//     with FailFast, until there is no connection.
//   - While the server's process hangs, hits go on, and everything else waits. While the
//     server's host is unreachable nothing is answered: a key has one server, and no
//     replica.
//
// A hit takes no lock for longer than a look at the map, allocates nothing (GetInto),
// and copies the value once, from registered memory to the caller's.
//
// # Long values
//
// What is longer than [Config] PaceFrom, be it a record or what GetMulti READs together, is READ in
// parts, each when a [github.com/goverbs/goverbs/pacer.Pacer] has credit for its bytes: that of the
// device, which all clients of the process share, or that of [Config]. So what they ask for
// together stays within what the network interface absorbs, and the response to a short GET, which
// is not paced, waits behind that much and not behind every long value that is wanted. GETs share
// the credit part by part.
//
// Nothing else changes. The record's first eight bytes, which say whether it is alive, come with the
// first part; its slot is not used again before the last one has come; and the checksum is one over
// all of them.
//
// # Many servers
//
// A [Cluster] gives each key to one server, by rendezvous hashing of the servers' addresses
// as they are written. All guarantees are those of that server's client, for clients with
// the same list: clients with different lists look for some of the keys in different
// places, and see different records there. A server that is down takes no other's keys
// along: its own fail at once with [ErrUnavailable], or, by choice, are misses to what
// reads. It is empty when it comes back, so nothing of before is a hit. Nothing covers
// several keys: GetMulti and SetMulti are many operations, and FlushAll goes server by
// server. The hash has no secret, so whoever chooses keys can choose their server.
//
// # Near cache: bounded staleness
//
// With [Config] NearBytes a client keeps copies of records that it READ, and answers them
// without a READ (Get, GetInto, GetMulti). Linearizability is given up for those, and this
// is promised instead:
//
//   - What a copy answers was current at most [Config] NearStale before the call began,
//     to the millisecond. A copy is answered only while the map has the record's entry, so
//     until the delta of a change arrives, usually within 50 ms, with many clients a sixteenth of the lease; and only while the
//     server was heard lately: it has to have told of all changes up to a time of its own
//     clock that is, whatever the clocks may have drifted apart, less than NearStale ago. A
//     server that is silent, or out of reach, makes copies useless, and READs go on.
//   - One client's reads of a key do not go back in time: whoever sees that a record is no
//     more drops its copy.
//   - A client sees its own acknowledged changes.
//   - CompareAndSwap with a copy's CAS number is as safe as ever: the server compares.
//
// Two clients with near caches may see changes in different orders for as long as
// NearStale. A near hit allocates nothing; a READ that makes a copy does.
//
// # Loader
//
// A [Loader] has one load under way for each key, in one process. A load ends when nobody
// waits for it any more, and not before. Errors are not remembered, unless for ErrorTTL.
// The item is stored with Add, so a load never overwrites what was stored while it ran. It
// may store what is older than a deletion meanwhile: the loader has no lease on the key.
//
// # Quarantine
//
// A slot that was freed is used again when every client has said that it applied the
// delta that freed it, and that the READs which it had begun before have ended. A client
// that does not say so within the lease (by default five seconds) is cut off: the server
// destroys its queue pair, after which the NIC answers none of its READs. So quarantine
// lasts at most one lease, as long as the server's process runs. When too much of the
// memory is in quarantine changes wait a moment, and are then refused with
// [ErrNoMemory]; nothing is used early.
//
// With an initiator (DC in [Config]) the slots wait for something else: see below.
//
// # Through an initiator
//
// A client with an initiator of package [github.com/goverbs/goverbs/dc] READs through the target of a server
// that has one (DC in the Config of package server), and has no queue pair there. Calls and what the server
// tells go by TCP. All guarantees hold. A target answers whoever knows it, so a client that is late is not cut
// off by destroying its queue pair: the server makes another target, tells the clients that are not late,
// and destroys the old one; then slots are used again that the late one could READ. So it is with clients
// whose connection has ended without a goodbye, which who closes says when its READs have ended. A READ that fails meanwhile is a call; a
// WRITE ([Client.WriteAt]) that was under way when the target was closed is one of which nobody knows ([ErrUnknown]). The first message of a server, and each
// that is of a target, has a seal, as what queue pairs say of themselves has; other messages by TCP have none. The
// key of a target crosses the wire when an initiator attaches: who hears that can READ, and WRITE, what this tenant's
// clients can, until the target is replaced.
//
// # Tenants
//
// A server with a key admits those who have it. Client and server prove it to each other by an
// HMAC over what both made up just now: the key does not cross the wire, and what was heard
// there is of no use to others, neither once more to the same server nor to anybody else. Package
// server can have several tenants at one address, each with a key, memory, a map and limits of its own. The memory of one is in a protection domain
// in which others have no queue pair: the device refuses who knows another's addresses and
// rkeys. It is READ only, but for a region that a tenant opts into (Writable in the Config of
// package server): that one its clients WRITE and READ as they like ([Client.WriteAt],
// [Client.ReadAt]), and other tenants' do not. A tenant that is revoked has its clients cut off and its memory not
// registered any more when that returns, and nobody is let in by its key.
//
// Until a client has proved its key nothing of the device is made for it, and at most 64
// connections wait, of fixed size each, five seconds at most, two when others want
// their place. Those that are let in connect by RDMA a few at a time, in the order in which they
// came, and the others are told to wait: all together would take so long that each gave up.
//
// Who is between a client and its server, and passes on what both say until each has the other's
// proof, must not go on by himself: the server would connect its queue pairs to his, and he would READ
// the tenant's records; or the client would take his answers for the server's. So what each side
// says of its queue pairs (numbers, addresses and first packet numbers, the memory that is
// offered, the epoch) has a seal: an HMAC by a key that comes of the tenant's and of all that was said in
// this greeting, with another label for each side. A seal is of no use on another connection, nor to
// the side that made it. Who finds a wrong one connects no queue pair for READs, takes no message, and
// does not try TCP instead. What it does not keep off: who is between them may keep RDMA from working, so
// that a client without RequireRDMA uses TCP, on which nothing is sealed; and what follows is neither
// encrypted nor signed: who can change packets on the way, or send in another's name, can
// do what that client can. Clients of one tenant see all of its keys, and may do all to them.
//
// # Shared records
//
// A server that opts in (Shared in the Config of package server) has a target of package
// [github.com/goverbs/goverbs/lockoffload] beside its records, with memory of its own in a protection
// domain of its own. [Client.Shared] names a record there. The server is asked once where it is; after
// that clients change it under a lock in that memory, in two round trips without the server's
// processor, also while its process is stopped, and read it by one READ that never shows half of a
// change. Changes of one record are linearizable. What package lockoffload promises of holders that
// die holds for clients that die. Shared records are no cache: nothing evicts them, and they end with
// the life of the server, a snapshot does not have them. Who is let in is known by a key that comes of
// the tenant's and of the server's epoch, so a record that was found in one life of the server is not
// looked for in the next.
//
// # Transport
//
// Where the server can be reached and admits a client, but there is no RDMA, the client
// connects by TCP, unless [Config] RequireRDMA is set. All guarantees hold; all is a call, so
// nothing goes on while the server's process hangs. [Stats] say so (Transport, and Instead, the
// reason), and the Logger hears a warning. So it is with RDMA instead of the initiator of [Config]. A better
// way than the one that there is is tried each RetryRDMA, and takes over without an error to anybody, unless what was
// begun before takes longer than ten seconds. Near copies begin anew then: the first is answered NearStale after all
// of that has ended.
//
// # What is not built
//
// There are no replicas, and nobody takes over from a server that is down. The list of
// servers does not change while a cluster is open, and servers have no weights. A client with
// a bounded map is told of all changes all the same. Loaders of several programs do not wait for
// each other. Keys that are hot are shown by rdmactl, and not spread over servers.
//
// # The claim of US 9,378,179
//
// The seed's first claim, element by element, and the device test that shows it.
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
//	many keys, READs of one doorbell           session.readMulti        TestGetMulti
//	many records, requests that share SENDs    session.setMulti         TestSetMulti
//	keys have their servers, evenly            rendezvous.Of            TestBalance
//	a new list moves the fewest keys           rendezvous.Of            TestMovement
//	a dead server costs the others nothing     Client.unavailable       TestClusterOutlivesAServer
//	a server that hangs holds up its own keys  Cluster.fan              TestClusterWithAServerThatHangs
//	all servers are asked at once              Cluster.fan              TestClusterAsksAllAtOnce
//	one load for all who miss                  Loader.fly               TestSingleFlight
//	loads outlive callers that give up         Loader.leave             TestLoadOutlivesItsCaller
//	a copy is stale no longer than allowed     mirror.Holds             TestNearCacheUnderChanges
//	a near hit needs no READ, and no memory    session.nearby           TestNearHitDoesNotAllocate
//	a client without etcd, gRPC or server      Client.get               TestCacheClientIsLight
//	long values in parts, as there is credit   flow.credit              TestLongValuesInParts
//	no part of which is torn or stale          flow.record              TestLongValuesUnderChanges
//	short GETs do not wait behind long ones    session.readInto         TestShortGETsBesideLongOnes
//	a miss is confirmed                        session.ask              TestHitIsOneREAD
//	what has changed is found by READs         session.follow           TestChangedRecords
//	a tombstone leads to the next record       wire.Forwarded           TestTombstonesLeadToNoOtherRecord
//	and the last ones to what is alive         Store.lead               TestTombstoneLeads
//	no torn and no stale values                session.try              TestWritersReadersEvictors
//	expiry by the server's clock               mirror.Weigh             TestExpiry
//	another life of the server                 Client.keep              TestServerIsKilledAndComesBack
//	a gap means a new snapshot                 store.Deltas             TestGapMeansANewSnapshot
//	clients that hang are cut off              store.Late               TestLateClientIsCutOff
//	hostile clients harm themselves            Server.take              TestHostileClients
//	a quiet client takes little of the server  inbox.takeAll            TestServerHasLittleOfAQuietClient
//	a miss and a hit by READs of buckets       session.probe            TestHitByBuckets
//	many keys by READs of buckets              session.looked           TestHitByBuckets
//	buckets beside changes and a growing map   Probe.Read               TestBucketsUnderChanges
//	what a bucket has is kept if it is true    Mirror.Adopt             TestAdopt
//	a proof of the key, and not the key        Server.Proved            TestProofsAreGoodOnce
//	nobody else comes in                       door.greet               TestTenantsKeepStrangersOut
//	nobody goes on in another's place          link.Join                TestNobodyTakesOverAGreeting
//	the device refuses another tenant's rkey   Tenants.Admit            TestTenants
//	clients WRITE what is for that alone       Client.WriteAt           TestWritableRegion
//	clients change records without the server  Shared.Update            TestSharedRecords
//	also while it is stopped, in one life      greet.SharedKey          TestSharedRecordsWithoutTheServer
//	of its tenant alone                        SharedConfig.Records     TestSharedRecordsOfTenants
//	and by names, of many servers              Cluster.Shared           TestSharedRecordsOfACluster
//	a revoked tenant's pointers are of no use  Tenants.Revoke           TestRevokedTenant
//	who says nothing keeps nobody out          door.enter               TestStrangersAtTheDoor
//	clients connect a few at a time            turns.take               TestClientsConnectInTurn
//	128 at once, and 1,000 in all, have RDMA   turns.take               TestCrowd
//	a hit through an initiator is one READ     session.readOne          TestHitThroughAnInitiatorIsOneREAD
//	of what the server has sealed              session.readTarget       TestTargetIsSealed
//	many keys and long values, too             through.start            TestManyAndLongThroughAnInitiator
//	servers take no queue pair of a client's   session.dialThrough      TestManyServersThroughOneInitiator
//	who hangs READs nothing when it is late    Server.replaceTarget     TestLateClientsReadNothingThroughTheTarget
//	whoever may READ is not forgotten          Fence.Closed             TestNobodyReadsWhoIsForgotten
//	who closes holds up nothing                Server.leave             TestGoodbyeThroughAnInitiator
//	who cannot READ there goes another way     Client.connect           TestAnotherWayThanTheInitiator
//	and comes back, no request being lost      Client.replace           TestBackToTheInitiator
//	WRITEs go there, and to no record          session.writeOne         TestWritesThroughAnInitiator
//	a host that is gone is found               link.NewStream           TestOnHostsServerBehindAnInitiatorIsKilled
//	nor is the server needed for hits          session.readOne          TestHitsThroughAnInitiatorWithoutTheServer
//	TCP where there is no RDMA, visibly        Client.connect           TestWithoutRDMA
package cache
