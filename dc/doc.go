// Package dc is the dynamically connected transport: an initiator reaches any number of
// targets through a few queue pairs, which it connects to one target after another. So a
// process with a thousand peers does not hold a thousand connections.
//
//	target, err := dc.NewTarget(dc.TargetConfig{PD: pd, AccessKey: key})
//	b, err := target.Address().MarshalBinary() // send it to anyone
//
//	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: pd})
//	var addr dc.Address
//	err = addr.UnmarshalBinary(b)
//	peer, err := i.Resolve(addr, key)
//	err = i.Do(ctx, peer, dc.Request{Op: dc.Read, Local: mr.SGE(0, 64), Remote: region.At(0)})
//
// A [Target] has a pool of responder contexts behind one [Address], with one shared receive
// queue. An [Initiator] has [InitiatorConfig.Contexts] initiator contexts, each of which serves
// one target at a time: it opens a session, posts requests, and leaves the target for another
// one. With one context that is a serial initiator.
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
// Every request that Post took has one completion, unless it is [Request.Quiet] and succeeds, or the
// initiator is closed. A request that succeeded was carried out once, at its target. One that
// failed with [ErrSession], or was under way when the initiator was closed or its device failed, was
// carried out once or not at all. One that failed with any other error was not carried out.
//
// A request is posted a second time only if the first had no effect because the target had no
// receive; that is certain in networks that do not double packets. A WRITE with immediate of more
// than one packet has an effect before the target looks for a receive. If there is none, the request
// fails with [ErrSession] and [ErrNoReceive], and its memory is written in part. Where packets get
// lost, Soft-RoCE may complete an atomic without its result: see [verbs.Batch.FetchAdd].
//
// Requests to one target are carried out in the order of posting. Between targets there
// is no order.
//
// Late packets of one session have no effect on another, and a message for an earlier target at the
// same address is refused. A target that dies fails its own requests only; for hardware see below.
//
// The access key keeps out mistakes, and hosts that cannot read packets on the network. It
// travels in the clear. A target does not reply to a message without the key, or to one that
// names another sender than the packet's header. If a target is silent, the initiator recognises
// a wrong key by 16 bits in the target's address ([Address.KeyCheck]).
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
// # Fairness
//
// A target keeps its context until another target needs one. Idle sessions make room first, the
// least recently used before the others; a busy one makes room after [InitiatorConfig.Quota]
// requests or [InitiatorConfig.Hold]. Targets with many waiting requests are served before those
// with few, which makes for the fewest attaches, but none waits longer than [InitiatorConfig.MaxWait]
// while one that has waited less is served. If a target has no posted receive, the initiator
// detaches after a few milliseconds and retries later; messages to it keep their order.
//
// A target that needs a responder context for another initiator recalls a session, and ends it
// after [TargetConfig.Recall] if it does not end before. So an initiator that does not poll, or
// is dead, does not hold a context for long.
//
// # Changes of the host
//
// The local address may go away and come back, the link may fail and recover, a netdev may
// get another name, and the link-layer address of either end may change. Initiators and targets find
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
// On an mlx5 device with the dynamically connected transport, a target is one DCT with the shared
// receive queue, and the contexts of an initiator are DCIs, which the device attaches by itself.
// There are no sessions, and the configuration fields for them are ignored. [Backend] chooses the
// back end, which is part of an address; an initiator of one refuses addresses of the other with
// [verbs.ErrUnsupported]. MTUs must be equal. This back end has not run on hardware. Its state
// machine is tested against a model of the device, its calls against queue pairs that record
// them, and all of it through libmlx5 on a simulated device. What differs:
//
//   - A target without a posted receive, or a dead one, stops the others of its stream; without
//     streams ([InitiatorConfig.Streams]), those of its DCI.
//   - A failed request stops its stream. On a device without streams, or with as many streams
//     in error as it allows, it stops the whole DCI. The requests behind it fail with
//     [ErrSession], those of other targets too: each was carried out once or not at all.
//   - A DCI that cannot be led out of error is not used any more; when none is left, Post
//     fails.
//   - A wrong access key shows as a request that fails, not as [ErrAccessKey]. The address of an
//     earlier target does not fit the next one's key, even with the same DCT number.
//   - A target cannot tell initiators apart: [Received.Session] is 0.
//   - Masked atomics ([InitiatorConfig.Masked]) are mlx5's own, on DCIs and on RC queue pairs.
//     They are not emulated, which would take several dependent round trips, as
//     [verbs.NewMasked] does them.
//
// The published design that the package follows is in docs/background.md.
package dc
