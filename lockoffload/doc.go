// Package lockoffload locks remote memory, accesses it and unlocks it without waiting for
// replies in between.
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
// The memory is a [Region] of slots. Each slot has a lock word and records. The usual way
// to write is Update, which returns when the change has happened. Read and Update are
// short for what most programs need of [Client.Do], which carries out a [Chain]: it reads,
// compares and writes several records under one lock, counts its tries, has the target
// carry out a change in one round trip, or returns before the change has happened.
// [Client.SwapWrite] takes no lock.
//
// # Admission
//
// Client and target prove to each other that they have the same key, over challenges that
// are never used twice, before any resource is made for a client. So knowing the address
// is not enough to change anything, nor is a replay of recorded messages. Silent
// connections do not delay others.
//
// The key encrypts nothing: endpoints, which contain the rkey of the memory, go over the
// wire in the clear, unless the connections are TLS ([NewListener], [DialConfig.Dialer]).
// RDMA itself is not encrypted either.
//
// A program with its own way to exchange endpoints makes a [Region], a [Server] and
// perhaps an [Agent] itself, and gives each client an [Invite]:
//
//	srv, err := lockoffload.NewServer(lockoffload.ServerConfig{PD: pd, Region: region})
//	place, err := srv.Admit(nil)                // at the target, for each client
//	local, err := place.Endpoint()              // send this to the client
//	err = place.Connect(remote)
//
//	c, err := lockoffload.NewClient(lockoffload.Config{PD: pd, QP: qp, CQ: cq, Invite: invite})
//
// The target's own process can have a client too ([Listener.Local]). It locks through the
// device like all others, because a device's atomics need not be atomic against the
// CPU's.
//
// # Reading
//
// A read is one READ, without a lock:
//
//	READ both copies          ───────▶ versions, checksums, data
//
// A slot's data has two copies, each with version and checksum. A change is one WRITE of
// all records of the slot over the copy that is not current; the higher version counts. A
// reader requires both copies to be valid, and takes the one with the higher version x.
// That is right in whatever order the bytes of READs and WRITEs move:
//
//   - Changes of a slot follow each other. The next one is written by the holder of a
//     lock that was given back after the last one, and a target executes WRITEs and
//     atomics of a queue pair in the order in which they came (InfiniBand specification,
//     chapter 9.5, transaction ordering).
//   - x is current from the moment when the last byte of its copy is there until the
//     moment when the last byte of x+1 is there, which goes to the other copy.
//   - All bytes of x were there when the READ ended. The other copy, valid and older, was
//     seen before all of x+1 was there. So x was current at some moment of the READ.
//   - Data under a lock is written once: [Held.Write] collects it, and one WRITE goes out
//     with the unlock command (or with [Held.Commit], if the holder wants it seen). So a
//     reader sees nothing from inside a critical section.
//
// One case remains. A holder that dies in the middle of its WRITE leaves a copy in
// pieces, with the version that the next holder will use, and what the next holder writes
// may happen to be the missing part. So that no reader takes that copy for whole, the
// target removes the copy's head before it gives the lock back, and then waits until READs
// that may have seen the head are over. A READ without a lock counts only if it took at
// most a quarter of a lease, and at most 100 ms; the target waits twice as long.
//
// A torn copy is refused: its checksum (XXH3) does not match, except with a chance of
// 1 in 2^64. If a READ meets WRITEs, or is late, four times, the client READs under a
// lock instead, which it gives back when the READ is complete. A copy that is not valid
// then was left by a dead holder, and the other one is current.
//
// A [Chain] that only reads, and says how often it tries, is lock command, data access
// request and unlock command, posted together.
//
//	initiator                          target
//	CMP_SWAP lock   0 -> tag  ───────▶ old value
//	READ both copies          ───────▶ versions, checksums, data
//	CMP_SWAP lock   tag -> 0  ───────▶ old value
//	◀─────────── replies, one wait ───
//
// Each lock command has a tag of its own. If the lock command fails, the unlock command
// compares with a tag that is not there and changes nothing, and the data is thrown away.
// (A session's tags repeat after 2^31 lock commands: a lock must not be held while its
// client issues so many.)
//
// Only WRITEs, SENDs and atomics have an order at the target. The READ may be executed
// after the unlock command, and then during another holder's WRITE. Soft-RoCE also reads
// again when a response was lost, which may be after the unlock command. So the two
// copies make a read right, and the lock adds nothing to that: it only waits for a
// holder.
//
// # Changing
//
// A change takes two steps:
//
//	CMP_SWAP lock 0 -> tag, READ readers and both copies ───────▶
//	◀───────────────────────────────────── replies: the caller computes
//	WRITE the other copy, CMP_SWAP lock tag -> 0           ───────▶
//	◀───────────────────────────────────── replies: it has happened
//
// Nothing holds back a WRITE behind a lock command that failed, so the WRITE goes out
// only when the reply says that the lock was acquired. The READs have completed by then,
// and a target executes a WRITE before an atomic behind it: the next holder of the lock
// reads what was written. [Chain.Async] does not wait for the second replies;
// [Result.Commit] has the outcome.
//
// [Client.LockAll] takes the locks of several slots in ascending order, so that its
// callers cannot deadlock. Clients that hold the same locks see all of a change under
// them or nothing, unless the client died in the middle of it: there is no log. Reads
// without a lock see each slot by itself. Data that must always change together belongs
// in one slot.
//
// Holders of the shared lock keep writers out. A writer takes the lock word first and
// then looks at the readers; a reader sets its bit first and then looks at the lock word.
// At least one sees the other, because all four steps happen in the order of their queue
// pairs. That includes the READ of the readers' bits, which may come late but not early.
// The reader gives way; the writer waits under the lock.
//
// # Fairness
//
// A [Fair] lock goes to clients in the order in which they asked for it. The target's
// agent hands the lock from one client to the next:
//
//	client                             target's agent
//	SEND {turn at the lock?}     ───▶  first in the queue, and CMP_SWAP lock 0 -> R found 0
//	◀──────── SEND {it has R} ───────
//	CMP_SWAP lock R -> tag, READ readers and both copies    (the lock is held)
//	WRITE the other copy, CMP_SWAP lock tag -> 0
//	SEND {my turn is over}, with the WRITE ▶  CMP_SWAP lock R -> 0, CMP_SWAP lock 0 -> R' for the next one
//
// R is a value that was never in the lock word before, and while the word is R the lock
// has no holder. So the agent can take it back at any time: from a client that does not
// come within half a second, or when the agent itself is closed or replaced. If a client's
// swap does not find R, the client asks again. The agent also notices a client that does
// not say that its turn is over, or that takes the lock without asking: it looks whether
// the lock is free, at least every 5 ms ([AgentConfig.MaxPause]). What a dead holder had
// locked becomes free with its lease, as always. The agent remembers waiting clients, and
// nothing about others. It reserves at most 1,024 locks at a time for one client; a client
// that asks for more gets [ErrBusy].
//
// A lock that is handed on is never free for clients that take it without asking. So
// after 200 ms of that, the agent leaves the word free for 10 ms. A client that has seen
// the lock in the agent's hands looks for it more often than that.
//
// Turns decide only the order. The lock word is taken as always, so no mistake in the
// queue lets two clients hold a lock. Chains with [Chain.Fair] go to the agent too, which
// serves its clients by turns, and many waiting clients under one lock. Without an agent
// fair locks and chains are [ErrNoAgent]; a client that has lost the agent gets
// [ErrBroken] beside it, and [Client.Persist] goes on with the next agent.
//
// The size of a slot does not grow with the clients beyond 512. Each of the first 512 has
// one bit in it, for the shared lock. Clients beyond these hold the shared lock through
// the lock word, with a tag that says so, one of them at a time.
//
// # Leases and recovery
//
// A client's watchdog increments a heartbeat word three times in a lease, the first time
// before anything else that the client posts. The client's lease runs from the posting of
// the last heartbeat that was acknowledged. When the lease is over, [Held.Lost] is
// closed, no further WRITE is posted, and the queue pair goes to ERROR. Leases, and the time
// that a READ may take, count while the client's host is suspended; a client that wakes up
// after the end of its lease posts no WRITE, and its Lost is closed within a third of a lease.
//
// The target sees each heartbeat later than it was posted, and waits half a lease longer.
// Then it recovers the client's locks:
//
//   - It moves its end of the queue pair to ERROR and RESET ([verbs.QP.Quiesce]). From
//     then on nothing late executes, whatever the client does.
//   - It READs through a queue pair to itself, which pushes what is still on the bus into
//     memory.
//   - It looks for a heartbeat once more. One that came between the look that found none
//     and the fence may have been acknowledged, and its lease is waited for.
//   - Only then does it give back the dead client's locks and reader bits, through the
//     same queue pair: atomics of a device need not be atomic against a
//     CPU's.
//
// The promise is three leases. Recovery takes less than two when the target itself is not
// late, plus 200 ms or half a lease, whichever is less, if a WRITE was executed in part.
//
// Clients that the server finds expired at the same time are recovered together. The
// CPU looks at each slot once, which takes some thirty instructions, and requests are
// posted only for what the clients held. The leases of the clients of one host end within
// a third of a lease, so there may be four such passes.
//
// A target that ends a session of a client that lives ([Session.Close], [Server.Close])
// fences it at once, and waits for the end of its lease before others have its locks.
//
// Recovery fails if a queue pair cannot be fenced, or the target's own queue pair broke.
// Then the locks stay as they are, [Session.Done] stays open, [Server.Err] says why, and
// the server tries again until it succeeds. A server that is closed before that leaves
// the locks to the next server, which takes back all that sessions left before it admits
// clients. A server also takes back, within sixteen leases, what it finds of sessions
// that it does not know. When the target's device is removed there is nothing to fence,
// and no way to the region: sessions end, and objects of the device can be closed without
// an error.
//
// A region has one server and one agent at a time; others are refused. Its memory must
// not have relaxed ordering, because an unlock command could then overtake a WRITE.
//
// A holder that dies in the middle of a WRITE has damaged a copy that was not current.
// Its change has not happened, for any of the records, and no reader sees it.
//
// Resources outside the region cannot be fenced like this. They can refuse a [Held.Token]
// that is lower than one seen before.
//
// # Restarts
//
// A target's memory is volatile: a region lasts as long as its [Listener], or until
// [NewRegion] lays its memory out again. What a program cannot lose it keeps elsewhere.
//
// A target that is started anew is a different target, also at the same address. Each
// region has a random [Invite].Incarnation, which the agent sends to its callers too. A
// client of one incarnation does not go on at another one: [Client.Reconnect],
// [Client.Redial], [Client.Persist] and the chains of a [Caller] return [ErrRestarted],
// and the program makes a new client and reads what is there. Versions and tokens do not
// start again: those of a new region begin at the clock's microseconds, so a compare with
// a version from before the restart fails, and a token from before is lower than all new
// ones.
//
// A holder at the earlier target may rely on its lock until its lease is over. So a new
// region's [Server] admits no client for one and a half leases ([ServerConfig].Grace); Dial
// waits for it. The agent executes chains from the start: a chain holds its lock only
// while it changes the region.
//
// # The target's agent
//
// An [Agent] at the target carries out whole chains that clients SEND to it. It examines
// the lock, performs the accesses only if the lock permits, retries as often and as long
// as the chain says, unlocks, and replies.
//
//	initiator                          target
//	SEND {lock, compares, READs, WRITEs} ─▶ CMP_SWAP lock 0 -> tag                 (through the device)
//	                                        readers' bits and accesses, with the CPU
//	◀── SEND {status, versions, data} ───── CMP_SWAP lock tag -> 0                 (through the device)
//
// So a change and its outcome take one round trip instead of two, but cost the target's
// CPU. The agent changes lock words through a queue pair to itself, with RDMA atomics like
// all clients. It touches records only under their lock, when nothing else does. By the time
// of the lock command's completion, the previous holder's data is in memory. So are the bits
// of all readers that may not have seen the lock: a device writes words and completions to
// memory in order.
//
// A [Caller] may have to issue a chain again when its connection broke before the reply.
// The chain's key (client and sequence number) identifies it as the same chain. The agent
// remembers its last replies to a client and executes nothing twice. A new agent of a
// region does not know what its predecessor executed, nor does an agent that forgot the
// client ([Agent.Forget]) before it came back. For chains that were made before, their
// reply is [ErrOutcomeUnknown]. A reply is final for its key, [ErrBusy] included; otherwise
// a late copy of a chain with the reply "nothing was changed" could still change something.
//
// Chains that wait for one slot are executed under one lock, by turns of their clients;
// so are chains that have arrived when the agent looks for more. When there is none, or
// 16 were executed, the agent gives the lock back and leaves it free for a moment, for
// clients that take it remotely. If an agent fails, the next one, which a [Listener]
// makes at once, unlocks what it left.
//
// [Client.Do] sends chains that write to the agent if there is one, and carries out all
// others remotely.
//
// # Swapping
//
// [Client.SwapWrite] changes data without a lock, in one round trip: it writes a copy
// that only this client writes, and moves a pointer to it if the pointer is still where
// the client saw it.
//
//	WRITE private copy, CMP_SWAP pointer old -> copy | version+1  ───────▶
//
// Versions only grow, so a pointer that was seen never comes back. A reader requires the
// copy to have the pointer's version. Each owner number has two copies, of which at most
// one is current, so a client that dies leaves nothing that would have to be found and
// given back.
//
// # Errors
//
// [ErrNotAcquired], [ErrBusy], [ErrDiffers]: nothing was changed. [ErrLost]: the lock
// went to others before it was given back. [ErrBroken]: the connection failed, and
// nothing was changed unless the error also matches [ErrOutcomeUnknown];
// [Client.Reconnect] goes on with a new queue pair and a new invite. On rxe, which takes
// seven retries as retries without end, a dead target shows when the lease is over.
//
// If packets are lost, or slower than the acknowledgement timeout, Soft-RoCE's sender
// sometimes completes a READ or an atomic without its result. The client notices that and
// returns [ErrBroken].
//
// All of this was run on Soft-RoCE, which executes READs in order, and again where a
// response was lost. Tests there have loss, duplicates and reordering, and kill hosts, and
// holders after each single request of each form. In a simulation READs do come late, and
// WRITEs in parts. Histories of all forms together, with clients and agents that die, are
// checked for linearizability there, on Soft-RoCE, and, through the unchanged libmlx5, on
// simulated mlx5 devices, where READs come late, and READs and WRITEs move by cache lines.
// Nothing has run on RDMA hardware.
package lockoffload
