// Package srd provides reliable datagrams: messages of any length, delivered in any order,
// over many network paths, without connections. It is the transport service that EFA calls
// SRD. On EFA the device does most of the work; on any other device an engine of this
// package does it, over UD queue pairs. An endpoint can send to any address that it knows,
// and gets a status for each message.
//
//	ep, err := srd.Open(srd.Config{PD: pd})
//	b, err := ep.Addr().MarshalBinary() // give it to anyone
//
//	var peer srd.Addr
//	err = peer.UnmarshalBinary(b)          // another endpoint's
//	err = ep.Send(ctx, peer, header, body) // nil: delivered, once
//
//	var ms [16]srd.Message
//	n, err := ep.Receive(ctx, ms[:])
//	for _, m := range ms[:n] { serve(m.From, m.Data) }
//	ep.Release(ms[:n]...)
//
// A message goes to a [Destination], which is a peer and a [Service]: Reliable delivers in any
// order, Ordered in the order of sending, and NoRetransmit does not send again what is lost. A
// [SendQueue] posts many messages and returns their completions; [Endpoint.Send] sends one and
// waits. Messages are cut into packets, which take several paths. The packets that are lost are
// sent again by another path. A message is delivered when all of it has arrived.
//
// # Guarantees
//
//   - Each message gets one status, unless the endpoint is closed first. [Delivered]: the message was
//     delivered once. [Refused], [Retransmit], [TooLarge], [PathMTU] and [Cancelled]: it was not delivered
//     and never will be. [Unresponsive]: it may have been delivered.
//   - No message is delivered twice, whatever the network does, whichever end restarts and
//     whatever is replayed. With a key, this holds across a restart of the receiver as
//     long as the hosts' clocks differ by less than the restart takes, because the first
//     message of a session is sent before the sender knows which life of the receiver gets it.
//   - Data belongs to the program again as soon as the status is known.
//   - A path that loses more than others, or is silent, is retired, and probed until it works
//     again. At least two paths stay in use, if there are as many.
//   - A message for which its receiver has no memory waits for as long as other messages have it,
//     or until the [context.Context] of Send ends. Senders wait in turn, with one message of
//     each service at a time: memory goes to the message that has waited longest.
//   - If a link on the way loses long packets and not short ones, that is found out within half
//     of [Config.PeerTimeout]. Messages under way in long packets end with [ErrPathMTU], and
//     later ones go in packets of 1024 bytes.
//   - An endpoint replies to unauthenticated peers at a bounded rate, and never with more bytes
//     than they sent. It keeps no state for a peer before the peer has shown that it receives at
//     the address that it names, or has the deployment's key ([Config.Key]).
//   - An endpoint keeps its address while its host changes. When the IP address goes and comes
//     again, the link goes down and up, the interface is renamed, or its MAC or that of a peer
//     changes, messages go on within seconds. While the IP address is gone, nothing is sent.
//
// # Costs
//
// An endpoint has [Config.Paths] source queue pairs, and on EFA one. A silent peer takes about
// 500 bytes. When there are [Config.MaxPeers], a new peer takes the place of one that has
// nothing under way and was silent for at least four times [Config.PeerTimeout].
//
// The first packets between two endpoints open a session, and the first message waits for it. With
// [Config.Key] the first message goes with the first packet, if it fits into a packet that any
// link carries.
//
// The packets under way are limited by the delay of the majority of paths and by the receiver's
// grant, to 256 for each [Destination]. When there are very many senders, they take turns; a waiting
// sender has a grant of 0. Log lines of one cause come every ten seconds at most.
//
// # On EFA
//
// A device with SRD queue pairs delivers packets of up to 8 KiB by itself, at most once
// each, by paths of its own choice. There a smaller state machine takes the place of the
// engine. It numbers messages instead of packets, and the receiver reports one result for
// each message. Calls, services, statuses and guarantees are the same. What differs:
//
//   - Both ends have to be on EFA: UD and SRD queue pairs cannot talk to each other.
//   - When a peer's queue pair is gone, all messages under way to the peer end as
//     Unresponsive within milliseconds; when EFA cannot reach the peer, as soon as EFA says
//     so.
//   - A receiver that nothing polls for a while, as during a long OnMessage, runs out of buffers.
//     A message that finds none is retried for a tenth of a second, and then Refused.
//   - The status of a packet is that of its message.
//   - With Config.Key a session opens in one round trip, without it in two. The first message
//     waits for that.
//   - The queue key is random unless Config sets one, so that an endpoint does not receive
//     what was sent to a predecessor with the same queue pair number.
//   - If the device gives up the queue pair, the endpoint ends: calls return the reason.
//   - Config.Paths has no effect, and [PeerStats] has no paths.
//
// None of this was tested on hardware: tests run on simulated devices below the unchanged
// libefa.
//
// The packets and the rules are in docs/protocol/srd.md, the published design that the package
// follows in docs/background.md, measurements in docs/srd.md.
package srd
