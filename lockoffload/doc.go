// Package lockoffload reads and changes records in remote memory under locks, by RDMA alone.
// A read takes one round trip, and lock, change and unlock take two, or one with the target's
// help.
//
// A target serves locked memory at an address:
//
//	target, err := lockoffload.Listen(pd, ":7473", lockoffload.ListenConfig{Layout: layout, Key: key})
//	defer target.Close()
//
// Clients dial it, and then access the memory by RDMA alone:
//
//	c, err := lockoffload.Dial(ctx, pd, "10.77.0.2:7473", lockoffload.DialConfig{Key: key})
//	defer c.Close()
//	data, res, err := c.Read(ctx, slot, buf)    // one READ
//	res, err = c.Update(ctx, slot, change)      // two round trips; change gets the old data
//	res, err = c.Do(ctx, &chain)                // accesses to several records of a slot
//	h, res, err := c.Lock(ctx, slot, options)   // h.Read, h.Write, h.Lost, h.Unlock
//
// The memory is a [Region] of slots. Each slot has a lock word and records. Read and Update
// are shorthands for the common uses of [Client.Do], which carries out a [Chain]: reads,
// compares and writes of the records of one slot, under one lock.
//
// A program with its own way to exchange endpoints makes a [Region], a [Server] and perhaps an
// [Agent] itself, and gives each client a [SessionInfo], which is in the endpoint that it sends:
//
//	srv, err := lockoffload.NewServer(lockoffload.ServerConfig{PD: pd, Region: region})
//	place, err := srv.Admit(nil)                // at the target, for each client
//	local, err := place.Endpoint()              // send this to the client
//	err = place.Connect(remote)
//
//	c, err := lockoffload.NewClient(lockoffload.Config{PD: pd, QP: qp, CQ: cq, Session: info})
//
// The target's own process can have a client too ([Listener.Local]). It locks through the
// device like all others, because a device's atomics need not be atomic against the CPU's.
//
// # Which call when
//
//	need                                  call              round trips     Result.Protocol
//	read a record                         Client.Read       1               ProtocolRead
//	change a record by its old data       Client.Update     2               ProtocolTwoStep
//	read, compare records of a slot       Client.Do         1               ProtocolRead
//	change records of a slot              Client.Do         1 by an agent   ProtocolAgent
//	                                                        2 without one   ProtocolTwoStep
//	return before the change is made      Chain.Async       1               ProtocolTwoStep
//	serve clients in their order          Fair              1 more
//	several steps, or several slots       Lock, LockAll     3 and more      ProtocolTwoStep
//	replace a value by its version        SwapWrite         1               ProtocolSwap
//
// # Guarantees
//
//   - Reads and changes of a slot are linearizable, in whatever order the bytes of READs and
//     WRITEs move. A reader sees nothing from inside a critical section: a slot's data has two
//     copies, and all changes under a lock are one WRITE of the copy that is not current
//     ([Lock.Write], [Lock.Commit]).
//   - A torn copy is refused: its checksum (XXH3) does not match, except with a chance of 1 in
//     2^64. A READ without a lock counts only if it took at most a quarter of a lease, and at most
//     100 ms. If a READ meets WRITEs, or is late, four times, the client READs under a lock
//     instead. A read under a lock guarantees no more; it waits until there is no holder.
//   - When Update has returned nil the change has happened. A holder that dies in the middle of
//     its WRITE has damaged a copy that was not current: its change has not happened, for any of
//     the records, and no reader sees it.
//   - [Client.LockAll] takes the locks of several slots without deadlocks. Nothing covers several
//     slots if the client dies in the middle: there is no log. Reads without a lock see each slot
//     by itself.
//   - Locks of a client that dies are free again after at most three leases. Recovery takes less
//     than two when the target itself is not late, plus 200 ms or half a lease, whichever is
//     less, if a WRITE was executed in part. Before others have the locks, the target fences off
//     the client: no late request of it is executed, whatever the client does.
//   - A client relies on its locks for one lease from the posting of the last heartbeat that was
//     acknowledged. After that [Lock.Lost] is closed, no further WRITE is posted, and the queue
//     pair goes to ERROR. Leases count while the host is suspended: a client that wakes up after
//     the end of its lease posts no WRITE, and its Lost is closed within a third of a lease.
//   - Resources outside the region cannot be fenced like this. They can refuse a [Lock.Token]
//     that is lower than one seen before.
//   - The agent executes nothing twice. A reply is final for its chain, [ErrBusy] included.
//   - A target's memory is volatile. A target that is started anew is a different target, also at
//     the same address: its clients get [ErrRestarted], and make a new client. A compare with a
//     version from before fails, and a token from before is lower than all new ones. A new target
//     admits no client for one and a half leases (Grace in [ListenConfig]); Dial waits for it.
//
// If recovery cannot fence a queue pair, the locks stay as they are, [Server.Err] says why, and the
// server tries again until it succeeds, or leaves them to the next server.
//
// After an error nothing was changed, unless the error matches [ErrOutcomeUnknown]; if the context of
// Unlock or of [Commit.Wait] ends, the change goes on. [ErrLost]: the lock went to others before it
// was given back. [ErrBroken]: the connection failed; see [Client.Retry], and docs/errors.md.
//
// # Admission
//
// Client and target prove to each other that they have the same key, over challenges that are
// never used twice, before any resource is made for a client. Knowing the address is not enough to
// change anything, nor is a replay of recorded messages. The key encrypts nothing: endpoints, which
// contain the rkey of the memory, go over the wire in the clear, unless the connections are TLS
// ([NewListener], [DialConfig.Dialer]). RDMA itself is not encrypted either.
//
// # Costs
//
// A read is one READ of both copies. A change is lock command and READs, and then WRITE and unlock
// command; an [Agent] carries it out on the target's CPU. A client that waits for a lock polls it with
// pauses ([Retry]). A [Fair] lock goes to clients in the order in which they asked for it; the agent
// hands it on, and without one fair locks and chains are [ErrNoAgent].
//
// The size of a slot does not grow with the clients beyond 512. A client sends three heartbeats in a
// lease. Recovery looks at each slot once, which takes some thirty instructions of the target's CPU.
//
// A dead target shows half a second after the next request by default, and when the lease is over
// at the latest: on Soft-RoCE seven retries ([verbs.ConnectConfig]) are retries without end. If
// packets are lost, or slower than the acknowledgement timeout, Soft-RoCE's sender sometimes
// completes an atomic without its result. The client checks each READ and atomic for its result,
// and returns [ErrBroken] if there is none.
//
// Nothing has run on RDMA hardware. Tests run on Soft-RoCE with loss, duplicates and reordering, and
// kill hosts, and holders after each single request of each form. Histories of all forms are checked
// for linearizability in a simulation, in which READs come late and WRITEs in parts, on Soft-RoCE,
// and, through the unchanged libmlx5, on simulated mlx5 devices.
//
// The published design that the package follows is in docs/background.md.
package lockoffload
