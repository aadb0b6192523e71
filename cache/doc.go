// Package cache will be the client of a distributed cache whose hits are RDMA READs.
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
//	  set, delete, increment, ... ──────────────▶ new record, tombstone in the old one
//	  ◀────────────────────────────────── reply   and a delta for everybody
//
// This package has no client yet. What exists are the machines below, none of which does
// I/O, and the gateway:
//
//	internal/wire    layouts of records, buckets and messages
//	internal/table   the server's hash map, in memory that clients may READ
//	internal/arena   where records lie: size classes, quarantine
//	internal/evict   S3-FIFO, fed by calls and by reports of READs
//	internal/store   the server: what each call does
//	internal/mirror  the client's map, and what it makes of what it READ
//	gateway          memcached's text and meta protocol over any store
//
// The server over RDMA, the client, the daemon and the benchmarks are not written.
//
// # Guarantees
//
// A record is immutable while clients may READ it. It says itself what it is: full key,
// version, epoch and a checksum (CRC-32C) over all of it. A change writes a new record
// into a free slot, then makes the old one a tombstone by one store of eight bytes, then
// enters the new one into the map, and then replies. From that follows:
//
//   - No torn values. The bytes of a READ come one cache line at a time, in any order, and
//     some of them again when an answer is lost. A slot is used again only when no READ of
//     its last record can be under way (quarantine, below). If one is all the same, the
//     checksum refuses it, except by chance of one in 2^32.
//   - A READ that begins after a change was acknowledged does not see what was there
//     before, however old the client's map is: it finds the tombstone. The value of a READ
//     was current when the READ fetched the record's first eight bytes. So single keys are
//     linearizable, READs and calls together. Evictions count as deletions.
//   - A miss in the client's map is no answer. The server is asked, or the key's two
//     buckets are READ, unless a program chooses bounded staleness.
//   - A record that has expired by the server's clock is not a hit. Each message of the
//     server has its clock, so a client knows between which two times the server is;
//     when the later one is past the record's expiry the server is asked.
//   - flush_all is acknowledged when each record that was there has become a tombstone.
//     It goes key by key: it is a deletion of each key, not of all at one moment.
//   - Each pointer, record and message has the server's epoch, which is another one after
//     a restart. A client takes nothing of another epoch than its map's.
//
// # Quarantine
//
// A slot that was freed is used again when every client has said that it applied the
// delta that freed it, and that the READs which it had begun before have ended. A client
// that does not say so within the lease (by default five seconds) is cut off: the server
// destroys its queue pair, after which the NIC answers none of its READs. So quarantine
// lasts at most one lease. When too much of the memory is in quarantine, changes are
// refused with "out of memory" and nothing is used early.
//
// # The claim of US 9,378,179
//
// The seed's first claim, element by element. "Not yet" is said where the code that does
// I/O is missing; the machine that decides is there and tested.
//
//	element                                    where               test
//	server with records in a cache in memory   internal/store      TestStore*
//	client receives the hash map               internal/mirror     TestSnapshotWhileChanging; over RDMA not yet
//	one or more entries for a key              internal/table      TestSeveralCandidates
//	entry has a server-side remote pointer     internal/wire       TestEntry
//	client looks up the pointer by the key     internal/mirror     TestLookup
//	client accesses the record by RDMA         not yet             TestReadersWritersEvictors (simulated READs)
//	without software of the server             not yet             (a hit while the server is stopped)
package cache
