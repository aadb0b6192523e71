// Package dc is the dynamically connected transport: an initiator reaches any
// number of targets through a few queue pairs, which it connects to one target
// after another. A process with a thousand peers does not hold a thousand
// connections.
//
//	target, err := dc.NewTarget(dc.TargetConfig{PD: pd, AccessKey: key})
//	b, err := target.Address().MarshalBinary() // send it to anyone
//
//	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: pd})
//	err = addr.UnmarshalBinary(b)
//	peer, err := i.Resolve(addr, key)
//	err = i.Do(ctx, peer, dc.Request{Op: dc.Read, Local: mr.SGE(0, 64), Remote: region.At(0)})
//
// # Who polls
//
// [Initiator.Do] does one request and answers its error; any number of goroutines
// share an initiator that way, and whoever waits polls for all. [Initiator.Start] is
// that for several requests of one target. [Initiator.Post]
// takes many requests, whose completions come to [Initiator.Poll] and
// [Initiator.Wait]: to whoever calls these. A completion is named by its work
// request, so it is always that of the request whose ID it has.
//
// # Protocol
//
// An initiator context, which is one RC queue pair, serves one target at a
// time. It sends a connect packet that names it and carries the access key; the
// target assigns a responder context, a queue pair of its pool, and answers
// with a session id. Requests flow under that session. When it is closed, the
// same initiator context connects to the next target. With one context that is
// a serial initiator. With more of them a target keeps its context until
// another target needs one: idle sessions make room first, the least recently
// used before others; a busy one after [InitiatorConfig.Quota] requests or
// [InitiatorConfig.Hold].
//
// The patent's data packets carry the session id. Those of RC have no room for it:
// the number of the responder's queue pair and the packet number stand for it. That
// is safe because a responder context serves one session at a time, gets another
// number when a session ends with anything that may be under way, and expects
// packet numbers that begin at a place chosen for each session.
//
// Of the targets that wait, the one with the most requests is served first, which
// makes for the fewest attaches, unless it has come much later than others; and none
// waits longer than [InitiatorConfig.MaxWait] while one is served that has not. A
// target that does not answer a connect packet and its repetition leaves its context
// to others, is asked by datagrams whether it is there, and comes back when it
// answers. One of which nothing was ever heard is asked so before it gets a context,
// if others wait for one, and keeps it without an answer for about as long as others
// take for theirs. One without a receive for a message is left after some
// milliseconds, and comes again by itself; its messages keep their order.
//
// Closing is put off, see [Parking]: the session stays at the target, and its
// responder context with it, while the initiator context serves others; or the target
// gives another one for later. When the context comes back it goes on without asking.
// That is possible for half of [TargetConfig.Lease] after the last message that the
// target answered, or on Soft-RoCE the last turn in which requests succeeded, unless
// the context has just left another target on the same host; otherwise a session is
// opened anew. A target that needs a responder context for somebody else recalls
// sessions, first those that it has not heard of for longest, and ends them after
// [TargetConfig.Recall] if they do not end before: so nobody holds one for long who
// does not poll, or is dead. A target needs a responder context for each initiator
// context that uses it from time to time, and shares what it has if there are fewer.
//
// The lease is not what brings responder contexts back to those who wait for them:
// [TargetConfig.Recall] is, after a second, from whomever and however long the lease.
// It bounds how long the target keeps what is left of an initiator that died while
// nobody waits, a queue pair that does nothing. On the other side it bounds how long
// a session can be parked without a message, so a short one makes an initiator that
// comes back every few seconds open a session each time. A minute is long beside that,
// and short beside what a connection of TCP leaves of a dead peer, with keep-alives
// two hours. Targets for which an initiator that was given up must not write any more
// after a shorter time choose a shorter one: whoever has the key has the memory for
// as long as the session lives.
//
// Control messages are datagrams. They may be lost, doubled and delayed: they
// are sent again, and each copy has the same effect as the first. A target
// whose responder contexts are all taken answers busy and remembers the order.
//
// # Guarantees
//
// Every request that Post took has one completion, unless the initiator is
// closed or the request is [Request.Quiet]. One that succeeded was carried out once,
// at its target. One that failed with [ErrSession] was carried out once or not at
// all; with any other error, not at all. A request is posted a second time only if
// the first time came to nothing, since the target had no receive; that is certain
// in networks that do not double packets.
//
// Requests of one target are carried out in the order of posting. Between
// targets there is no order.
//
// Every session has an id of its own, chosen at random, and packet numbers behind
// those of all sessions of its context before, from a random start. A responder
// context whose initiator fell silent is replaced by one with another number, so
// that late packets meet nothing. A message for an earlier target of the same address
// is refused.
//
// A target that dies fails its own requests only; with hardware see below.
//
// The access key keeps out mistakes and strangers that cannot read the
// network. It travels in the clear. A target answers nobody without it, or whose
// message names another source than the network does, makes no address handle for
// them, and keeps a bounded number of those for others. An initiator whose target is
// silent tells a wrong key by 16 bits in the target's address ([Address.KeyCheck]).
//
// # Costs
//
// Posting to an attached target is one crossing into C and allocates nothing;
// so is polling; [Initiator.PostPoll] is both in one. A new session costs one
// round trip of datagrams and two transitions of a queue pair at the initiator
// and one at the target, in which the kernel takes part; if another target has
// to make room, two more at the initiator, while the round trip is under way. A
// renewed session costs the two transitions, a parked one four, and neither any
// message. A known target that was never used costs some 120 bytes and no queue
// pair, one without a context that was, some 500.
//
// # Hardware
//
// All of this is the software back end. On a device of mlx5 that has the
// dynamically connected transport a target is one DCT, with the shared receive
// queue, and the contexts of an initiator are DCIs, which the device attaches
// by itself: there are no control messages, no sessions, no busy answers, and
// the fields of the configurations that concern these do not count. Which back
// end it is [Backend] chooses, and an address tells; an initiator of one
// refuses addresses of the other with [verbs.ErrUnsupported]. MTUs must be
// equal. This back end has not run on hardware: its state machine is tested
// against a model of the device, its calls against queue pairs that record
// them, and all of it through libmlx5 on a simulated device.
//
// A target keeps its DCI as long as it has requests there, and all its requests
// go to that one, in order. The next one goes to the DCI with the fewest
// requests, among those that work; there, if the device has streams, to the
// stream with the fewest targets. Targets for which there is no room wait in
// line at their DCI and take turns of [InitiatorConfig.Quota] requests. A
// target without a posted receive, or one that is dead, stops the others of its
// stream; without streams, those of its DCI.
//
// A failed request stops its stream, or all of its DCI: on a device without
// streams, or when it has as many streams in error as it allows. The requests
// behind it fail with [ErrSession], those of other targets too: each was
// carried out once or not at all. When all have completed, the stream is reset,
// or the DCI brought back through RESET, by the goroutine that polls. Until
// then requests wait, or go to another place if none of their target are under
// way. A DCI that does not come back is not used any more; after the last one
// Post fails.
//
// A wrong access key shows as a request that fails, not as [ErrAccessKey]. The
// address of an earlier target does not fit the next one's key, even with the
// same DCT number. A target cannot tell initiators apart:
// [Received.Session] is 0.
//
// # Masked atomics
//
// They are mlx5's own, on DCIs and on RC queue pairs, for initiators made with
// [InitiatorConfig.Masked]. They are not emulated: that takes several round
// trips that depend on one another, as [verbs.NewMasked] does them.
package dc
