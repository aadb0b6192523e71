// Package lockoffload locks remote memory, accesses it and unlocks it without
// waiting for replies in between.
//
// A target serves locked memory at an address:
//
//	target, err := lockoffload.Listen(pd, ":7473", lockoffload.ListenConfig{Layout: layout, Key: key})
//	defer target.Close()
//
// Clients dial it, and then access it by RDMA alone:
//
//	c, err := lockoffload.Dial(ctx, pd, "10.77.0.2:7473", lockoffload.DialConfig{Key: key})
//	defer c.Close()
//	data, res, err := c.Read(ctx, slot, buf)    // one READ
//	res, err = c.Update(ctx, slot, change)      // two round trips; change gets the old data
//	err = c.UpdateSlots(ctx, slots, changeAll)  // under all their locks
//	h, res, err := c.Lock(ctx, slot)            // h.Read, h.Write, h.Lost, h.Unlock
//
// The memory is a [Region] of slots, each a lock word and records. Update is the way to
// write: it answers when the change has happened. [Client.UpdateAsync] answers one round
// trip earlier, [Client.Do] has the target carry a change out in one round trip, and
// [Client.SwapWrite] takes no lock.
//
// # Who may
//
// Client and target show each other that they have the same key, in answer to numbers
// that are never used twice, before anything is made for a client: a stranger who knows
// the address changes nothing, nor does one who replays what he has heard. Connections
// that say nothing keep nobody waiting. The key keeps nothing secret: endpoints, and the
// key to the memory in them, go over the wire as they are, unless the connections are
// TLS ([NewListener], [DialConfig.Dialer]); RDMA itself is not encrypted either.
//
// A program that has its own way to exchange endpoints makes a [Region], a [Server] and
// perhaps an [Agent] itself, and gives each client an [Invite]:
//
//	srv, err := lockoffload.NewServer(lockoffload.ServerConfig{PD: pd, Region: region})
//	place, err := srv.Admit(nil)                // at the target, for each client
//	local, err := place.Endpoint()              // send this to the client
//	err = place.Connect(remote)
//
//	c, err := lockoffload.NewClient(lockoffload.Config{PD: pd, QP: qp, CQ: cq, Invite: invite})
//
// The target's own process has a client too ([Listener.Local]): it locks through the
// device like all others, because a device's atomics need not be atomic against the CPU's.
//
// # Reading
//
// A read is one READ, without a lock:
//
//	READ both copies          ───────▶ versions, checksums, data
//
// A slot's data has two copies, each with version and checksum. A change is one WRITE
// over the copy that is not current, of all records of the slot together; the higher
// version counts. A reader wants both copies valid, and takes the one with the higher
// version x. Why that is right, whatever the order in which the bytes of READs and
// WRITEs move:
//
//   - Changes of a slot follow each other. The next one is written by the holder of a
//     lock that was given back behind the last one, and a target executes WRITEs and
//     atomics of a queue pair in the order in which they came (InfiniBand
//     specification, chapter 9.5, transaction ordering).
//   - x is current from the moment at which the last byte of its copy is there, to the
//     moment at which the last byte of x+1 is, which goes to the other copy.
//   - All bytes of x were there when the READ ended. The other copy, which was valid and
//     older, was seen before all of x+1 was there. So x was current at some moment of the
//     READ.
//   - What is written under a lock is written once: [Held.Write] collects, and the one
//     WRITE goes out with the unlock command (or with [Held.Commit], if the holder wants
//     it seen). There is nothing else from inside of a critical section to be read.
//
// One thing remains: a holder that dies in the middle of its WRITE leaves a copy in pieces,
// with the version that the next holder will use, and what that one writes may be what is
// missing. So that nobody takes it for whole, the target removes the copy's head before it
// gives the lock back, and then waits until READs are over that may have seen the head. A
// READ without a lock counts if it took a quarter of a lease at most, and 100 ms; the
// target waits twice as long.
//
// A torn copy is refused: its checksum (CRC-32C) does not fit, except by chance of one in
// 2^32. A READ that meets WRITEs or is late four times is given up for one under a lock
// that is given back when the READ is complete: a copy that is not valid then is what a
// dead holder left, and the other one is current.
//
// [Client.ReadChain] is the read chain: lock command, data access request and unlock
// command, posted together.
//
//	initiator                          target
//	CMP_SWAP lock   0 -> tag  ───────▶ old value
//	READ both copies          ───────▶ versions, checksums, data
//	CMP_SWAP lock   tag -> 0  ───────▶ old value
//	◀─────────── replies, one wait ───
//
// Each lock command has a tag of its own, so behind one that failed the unlock
// command compares with a tag that is not there and changes nothing; the data
// is then thrown away. (A session's tags come again after 2^31 lock commands: a lock
// must not be held for as long as its client issues so many.) But only WRITEs, SENDs and atomics have an order at the target:
// the READ may be executed after the unlock command, and then under another holder's
// WRITE; Soft-RoCE reads again when an answer was lost, which is after the unlock command
// too. So the lock adds nothing to what makes a read right: the copies do. What it does
// is to wait for a holder.
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
// Nothing holds back a WRITE behind a lock command that failed, so the WRITE
// goes out only when the reply says that the lock is ours. The READs have
// completed by then, and a target executes a WRITE before an atomic behind it:
// whoever takes the lock next reads what was written. UpdateAsync does not wait for the
// second replies; [Result.Commit] tells the outcome.
//
// [Client.UpdateSlots] takes the locks of several slots in ascending order, so that
// callers of it cannot wait for each other in a circle, and gives none back before all
// slots are written. Whoever has the locks sees all of such a change or nothing, unless
// the client died in the middle of it: there is no log. Reads without a lock see each
// slot by itself. What must never part belongs into one slot.
//
// Holders of the shared lock keep writers out. A writer takes the lock word first and
// then looks at the readers, a reader sets its bit first and then looks at the lock
// word: at least one sees the other, for all four are in the order of their queue
// pairs, the READ of the readers included, which may come late but not early. The
// reader gives way; the writer waits under the lock.
//
// # Fairness
//
// A [Fair] lock goes to clients in the order in which they asked for it. Where the target
// has an agent, that one hands it from one to the next:
//
//	client                             target's agent
//	SEND {turn at the lock?}     ───▶  first in the queue, and CMP_SWAP lock 0 -> R found 0
//	◀──────── SEND {it has R} ───────
//	CMP_SWAP lock R -> tag, READ readers and both copies    (the lock is held)
//	WRITE the other copy, CMP_SWAP lock tag -> 0
//	SEND {my turn is over}, with the WRITE ▶  CMP_SWAP lock R -> 0, CMP_SWAP lock 0 -> R' for the next one
//
// R is a value that was never in the lock word before, and nobody holds a lock that has
// it. So the agent takes it back whenever it likes: from a client that does not come
// within half a second, or when the agent itself is closed or replaced. A client whose
// swap does not find R asks again. Who says nothing when the turn is over, or takes the
// lock without asking, is noticed too: the agent looks whether the lock is free, every 5
// ms at most ([AgentConfig.MaxPause]). What a holder that died had locked is free with
// its lease, as always. The agent remembers who waits, and nothing for the others. For one
// client it reserves 1,024 locks at a time at most; who asks for more draws tickets, see below.
//
// A lock that is handed on is never free for clients that take it without asking. So
// when that has gone on for 200 ms the agent leaves the word free for 10 ms, and a client
// that has seen the agent have the lock looks for it more often than that.
//
// Without an agent, or when it is not to be reached, clients draw tickets and look whose
// turn it is. That is fair to few clients, and the more wait the more slowly it goes.
// Tickets, and turns, decide the order only: the lock word is taken as by everybody else,
// so that no mistake in the queue, such as a ticket skipped whose owner was merely slow,
// lets two clients hold a lock. Such a client draws another ticket; should the one that
// was skipped be passed on a second time, by its owner, the target corrects the count.
// Turns, tickets, and clients that take the lock without either, know nothing of each
// other's order.
//
// Chains with [Chain.Fair] draw tickets, unless there is an agent: that one
// serves its clients by turns, and many of those who wait under one lock.
//
// A slot has room for the owners of the next eight tickets, and those behind sign when
// they are that near; and one bit for each of the first 512 clients that hold the shared
// lock. So it does not grow with the clients: those beyond hold the shared lock by the
// lock word, with a tag that says so, one of them at a time.
//
// # Leases and recovery
//
// A client's watchdog raises a heartbeat word three times in a lease, the first
// time ahead of all that the client posts. Its lease runs from the posting of the last
// heartbeat that was acknowledged; when it is over, [Held.Lost] is closed, no WRITE is posted any more and the queue pair
// goes to ERROR. The target sees each heartbeat later than it was posted, and
// waits half a lease longer. Then it moves its end of the queue pair to ERROR
// and RESET ([verbs.QP.Quiesce]), so that nothing late executes whatever the client
// does, READs through a queue pair to itself, which pushes what is still on the bus
// into memory, and looks for a heartbeat once more: one that came in between the look that
// found none and the fence may have been acknowledged, and its lease is waited for. Only
// then it gives back the dead client's locks, reader bits and
// tickets, through the same queue pair: atomics of a device need not be atomic against
// a CPU's.
// This takes less than two leases when the target is not late itself, and 200 ms or half a
// lease more, whichever is less, if a WRITE was executed in part; three are
// promised. The third is for tickets that nobody signed: a client that dies between
// its draw and the request behind it, which says whose the ticket is, leaves one that
// may be anybody's. Of those of before the end of its session the next eight are skipped
// a lease after it, and eight more with each lease. Clients whose leases are over at one
// look of the target's are recovered together: the CPU looks at each slot once, which takes
// some thirty instructions, and requests are posted for what they held alone. Those of one
// host are over within a third of a lease, so there may be four such passes.
//
// When that fails, because a queue pair cannot be fenced or the target's own one broke,
// the locks stay as they are, [Session.Done] stays open, [Server.Err] tells why, and the
// server tries again until it can. One that is closed before that leaves them to the next
// server, which takes back all that sessions left before it admits anybody. A server also takes back
// what it finds of sessions that it does not know, should there be any, within sixteen leases. When the target's device is
// removed there is nothing to be fenced, and no way to the region: sessions end, and what
// was on the device can be closed without an error.
//
// A region has one server and one agent at a time; others are refused. Its memory must
// not have relaxed ordering, with which an unlock command could overtake a WRITE.
//
// A holder that dies in the middle of a WRITE has damaged a copy that was not
// current: its change has not happened, for any of the records, and nobody reads it.
//
// Resources outside of the region cannot be fenced like this; they can refuse
// a [Held.Token] that is lower than one seen before.
//
// # The target's agent
//
// An [Agent] at the target carries out whole chains that clients SEND to it: it
// examines the lock, performs the accesses only when the lock permits, tries
// again as often and as long as the chain says, unlocks and answers.
//
//	initiator                          target
//	SEND {lock, compares, READs, WRITEs} ─▶ CMP_SWAP lock 0 -> tag                 (through the device)
//	                                        readers' bits and accesses, with the CPU
//	◀── SEND {status, versions, data} ───── CMP_SWAP lock tag -> 0                 (through the device)
//
// That is one round trip for a change, its outcome included, where two steps
// take two; and it costs the target's CPU. Lock words the agent changes through
// a queue pair to itself, like everybody else; records it touches only under
// their lock, when nobody else does. What the holder before wrote is there when
// the lock command's completion is. So are the bits of all readers that may not have
// seen the lock: a device writes words and completions to memory in order.
//
// A [Caller] may have to issue a chain again when its connection broke before
// the answer. The chain's key, client and sequence, says that it is the same
// one: the agent remembers a client's last answers and executes nothing twice.
// Another agent, at a target that was started again for instance, does not know
// what the one before executed, nor does one that forgot the client ([Agent.Forget])
// before it came back: they answer [ErrOutcomeUnknown] to chains that were made before.
// An answer is final for its key, [ErrBusy] included, or a late copy of a chain
// that was answered "nothing was changed" could still change something.
//
// Chains that wait for one slot are executed under one lock, by turns of their clients,
// and so are those that are there when the agent looks for more. When none is, or 16
// were executed, the lock is given back, and left free for a moment, for those who take
// it from afar. What an agent that failed left locked, the next one unlocks; a [Listener]
// makes it at once.
//
// A region without a server can have an agent alone ([AgentConfig.Alone]). Its clients dial
// it by [DialAgent]; the agent locks with the CPU, and a chain costs a round trip and what
// it does. Nobody locks from afar there, and nobody reads without the agent. What a server
// that had the region before could not take back, such an agent does before it serves.
//
// [Client.Do] gives chains that write to the agent when there is one, and
// carries out all others from afar.
//
// # Swapping
//
// [Client.SwapWrite] changes data without a lock, in one round trip: it writes a
// copy that only this client writes, and moves a pointer to it if the pointer is
// still where the client saw it.
//
//	WRITE private copy, CMP_SWAP pointer old -> copy | version+1  ───────▶
//
// Versions only grow, so a pointer that was seen never comes back; a reader
// wants the copy to have the pointer's version. Each owner number has two
// copies, of which one at most is current: a client that dies leaves nothing
// that would have to be found and given back.
//
// # Errors
//
// [ErrNotAcquired], [ErrBusy], [ErrDiffers]: nothing was changed. [ErrLost]: the lock went to others before
// it was given back. [ErrBroken]: the connection failed, and unless
// [ErrOutcomeUnknown] is beside it nothing was changed; [Client.Reconnect] goes
// on with a new queue pair and a new invite. On rxe, which sends again without
// end when it may retry seven times, a dead target shows when the lease is over.
//
// Soft-RoCE's sender sometimes completes a READ or an atomic without its result,
// where packets are lost or slower than the acknowledgement timeout. That is
// noticed, and is [ErrBroken].
//
// All of this was run on Soft-RoCE, which executes READs in order, and again where an
// answer was lost: with loss, duplicates and packets that overtake, and with hosts that
// are killed, holders behind each single request of each form. In a simulation READs
// do come late, and WRITEs in parts; histories of all forms together, of clients and
// agents that die, are checked for linearizability there, and on Soft-RoCE. So they are on
// simulated mlx5 devices, through the unchanged libmlx5, whose READs come late and whose
// READs and WRITEs go by cache lines. Never on RDMA hardware.
package lockoffload
