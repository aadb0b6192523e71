// Package dc is the dynamically connected transport: an initiator reaches any number of
// targets through a few queue pairs, which it connects to one target after another. So a
// process with a thousand peers does not hold a thousand connections.
//
//	target, err := dc.NewTarget(dc.TargetConfig{PD: pd, AccessKey: key})
//	b, err := target.Address().MarshalBinary() // send it to anyone
//
//	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: pd})
//	err = addr.UnmarshalBinary(b)
//	peer, err := i.Resolve(addr, key)
//	err = i.Do(ctx, peer, dc.Request{Op: dc.Read, Local: mr.SGE(0, 64), Remote: region.At(0)})
//
// # Polling
//
// [Initiator.Do] executes one request and returns its error, and [Initiator.Start] begins
// several requests to one target. Any number of goroutines can share an initiator that
// way; a goroutine that waits polls for all.
//
// [Initiator.Post] takes many requests. [Initiator.Poll] and [Initiator.Wait] return their
// completions. A completion carries the ID of its own work request, so it always belongs to
// that request.
//
// # Guarantees
//
// Every request that Post took has one completion, unless the initiator is closed or the
// request is [Request.Quiet]. A request that succeeded was carried out once, at its
// target. One that failed with [ErrSession] was carried out once or not at all. One that
// failed with any other error was not carried out. A request is posted a second time only
// if the first had no effect because the target had no receive; that is certain in
// networks that do not double packets. A WRITE with immediate of more than one packet has
// an effect before the target looks for a receive. If there is none, the request fails with
// [ErrSession] and [ErrNoReceive], and its memory is written in part.
//
// Requests to one target are carried out in the order of posting. Between targets there
// is no order.
//
// Every session has an ID of its own, chosen at random, and packet numbers after those of
// all earlier sessions of its context, from a random start. If the initiator of a responder
// context falls silent, one with another number replaces the context, so that late
// packets reach nothing. A message for an earlier target at the same address is refused.
//
// A target that dies fails its own requests only; for hardware see below.
//
// The access key keeps out mistakes, and strangers that cannot read the network. It
// travels in the clear. A target does not answer a message without the key, or one that
// names another source than the network does. It makes no address handle for such
// senders, and keeps a bounded number of handles for others. If a target is silent, the
// initiator recognises a wrong key by 16 bits in the target's address ([Address.KeyCheck]).
//
// # Costs
//
// Posting to an attached target crosses into C once and allocates nothing, and so does
// polling; [Initiator.PostPoll] does both in one crossing. A new session costs one round
// trip of datagrams, and two transitions of a queue pair at the initiator and one at the
// target, in which the kernel takes part. If another target has to make room, the
// initiator makes two more transitions, while the round trip is under way. A session
// that was kept costs four transitions, of which [Initiator.Detach] makes two ahead, and
// no message. A known target that was never used costs some 120 bytes and no queue pair;
// one that was used and has no context, some 500.
//
// # Protocol
//
// An initiator context, which is one RC queue pair, serves one target at a time. It sends
// a connect packet that names the target and carries the access key. The target assigns a
// responder context, a queue pair of its pool, and replies with a session ID. Requests
// flow under that session. When it is closed, the same initiator context connects to the
// next target.
//
// With one context that is a serial initiator. With several, a target keeps its context
// until another target needs one. Idle sessions make room first, the least recently used
// before the others; a busy one makes room after [InitiatorConfig.Quota] requests or
// [InitiatorConfig.Hold].
//
// The patent's data packets carry the session ID. RC packets have no room for it, so the
// responder's queue pair number and the packet number stand for it. That is safe: a
// responder context serves one session at a time, gets another number when a session ends
// while anything may be under way, and expects packet numbers that begin at a place
// chosen for each session.
//
// Of the targets that wait, the one with the most requests is served first, which makes
// for the fewest attaches, unless it has come much later than others. No target waits
// longer than [InitiatorConfig.MaxWait] while another is served that has waited less.
//
// Before a target that was never heard of gets a context, a datagram asks whether it is
// there. One that does not answer a connect packet and its repetition leaves its context
// to others, and is asked this way again. If a target has no posted receive, the initiator
// detaches after a few milliseconds and retries later; messages to it keep their order.
//
// On Soft-RoCE closing is put off, unless [InitiatorConfig.CloseSessions] says otherwise:
// the session stays at the target, with its responder context, while the initiator
// context serves others. When the context comes back, it goes on without asking, from the
// packet number that the responder context expects. It can do that for half of
// [TargetConfig.Lease] after the last message with a reply from the target, or the last turn
// in which requests succeeded, unless the context has left another target on the same
// host within the last second. Otherwise it opens a new session.
//
// A target that needs a responder context for another initiator recalls sessions, beginning
// with those that it has not heard of for longest. It ends them after
// [TargetConfig.Recall] if they do not end before. So an initiator that does not poll, or
// is dead, does not hold a context for long. A target needs one responder context for
// each initiator context that uses it from time to time, and shares what it has if there
// are fewer.
//
// So it is [TargetConfig.Recall], and not the lease, that brings responder contexts back
// to the initiators that wait for them: after a second, however long the lease.
// The lease limits how long the target keeps what is left of a dead initiator while
// no other one waits: a queue pair that does nothing. It also limits how long a session can be
// kept without a message, so with a short lease an initiator that comes back every few
// seconds opens a session each time. A minute is long compared with that, and short
// compared with what TCP leaves of a dead peer: two hours with keep-alives. If an
// initiator that was given up must stop writing sooner, choose a shorter lease: an initiator
// with the key has the memory for as long as the session lives.
//
// Control messages are datagrams. They may be lost, doubled and delayed: they are sent
// again, and each copy has the same effect as the first. A target without a free responder
// context replies busy and remembers the order.
//
// # Changes of the host
//
// The local address may go away and come back, the link may fail and recover, a netdev may
// get another name, and either end another link-layer address. Initiators and targets find
// their GID again in the GID table, and make their address handles and connect their queue
// pairs anew. Requests that the device has meanwhile fail with [ErrSession], and requests
// that wait fail with [ErrUnreachable] if it takes longer than
// [InitiatorConfig.ConnectTimeout]. Later ones succeed, without any help of the program. A
// neighbour's new link-layer address is noticed within a second or two of sending to it,
// with hardware by a request that fails. A DCT cannot follow its GID to another place of
// the table; its target logs an error then, and must be closed and made anew.
//
// # Hardware
//
// All of this is the software back end. On an mlx5 device with the dynamically connected
// transport, a target is one DCT with the shared receive queue, and the contexts of an
// initiator are DCIs, which the device attaches by itself. There are no control messages,
// no sessions and no busy replies, and the configuration fields for them are ignored.
// [Backend] chooses the back end, which is part of an address; an initiator of one
// refuses addresses of the other with [verbs.ErrUnsupported]. MTUs must be equal. This
// back end has not run on hardware. Its state machine is tested against a model of the
// device, its calls against queue pairs that record them, and all of it through libmlx5
// on a simulated device.
//
// A target keeps its DCI as long as it has requests there, and all its requests go to
// that one, in order. The next one goes to the DCI with the fewest requests, among those
// that work; there, if the device has streams, to the stream with the fewest targets.
// Targets for which there is no room wait in line at their DCI and take turns of
// [InitiatorConfig.Quota] requests. A target without a posted receive, or a dead one,
// stops the others of its stream; without streams, those of its DCI.
//
// A failed request stops its stream. On a device without streams, or with as many streams
// in error as it allows, it stops the whole DCI. The requests behind it fail with
// [ErrSession], those of other targets too: each was carried out once or not at all. When
// all have completed, the goroutine that polls resets the stream, or brings the DCI back
// through RESET. Until then requests wait, or go elsewhere if none to their target are
// under way. A DCI that does not come back is not used any more; after the last one, Post
// fails.
//
// A wrong access key shows as a request that fails, not as [ErrAccessKey]. The address of
// an earlier target does not fit the next one's key, even with the same DCT number. A
// target cannot tell initiators apart: [Received.Session] is 0.
//
// # Masked atomics
//
// They are mlx5's own, on DCIs and on RC queue pairs, for initiators made with
// [InitiatorConfig.Masked]. They are not emulated, which would take several dependent
// round trips, as [verbs.NewMasked] does them.
package dc
