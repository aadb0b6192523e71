// Package srd provides reliable datagrams: messages of any length, delivered in any order,
// over many network paths, without connections. It is the transport service that EFA calls
// SRD. On EFA the device does most of the work; on any other device an engine of this
// package does it, over UD queue pairs. An endpoint can send to any address that it knows,
// and gets a status for each message.
//
//	ep, err := srd.Open(srd.Config{PD: pd})
//	b, err := ep.Addr().MarshalBinary() // give it to anyone
//
//	err = ep.Send(ctx, peer, header, body) // nil: delivered, once
//
//	var ms [16]srd.Message
//	n, err := ep.Receive(ctx, ms[:])
//	for _, m := range ms[:n] { serve(m.From, m.Data) }
//	ep.Release(ms[:n]...)
//
// # How it works
//
//	SendQueue --- message ---> Context: a peer and a service
//	                              |
//	                         packet flow: 512 numbers, 256 packets under way
//	                        /     |     \
//	                 sub-flow  sub-flow  sub-flow: a path each, with its own timer
//	                    |         |         |
//	                UD queue pair each: its own UDP source port, its own way
//	                        \     |     /
//	                      window of the receiver: bitmap, reassembly
//	                              |
//	                  response: what came, what was refused, how much may come
//
// A message is cut into packets, which may arrive in any order. The message is delivered
// when all of it has arrived. A response lists the packet numbers that arrived.
//
// A packet counts as lost when a later packet of the same sub-flow has arrived, or when
// the timer of its sub-flow ends. It is sent again by another path. Each response to a
// sub-flow starts its timer anew.
//
// Paths by which packets arrive are used again, the less busy ones first. While no path is
// worse than the others, all take turns, with a burst of packets each. A path that loses
// more than others, or is silent, is retired, and probed until it works again. At least two
// paths stay in use.
//
// A packet is as long as the links of both ends carry: each end takes the MTU of the netdev
// that has its address, and sends it in its greeting. If a link on the way loses long packets
// and not short ones, that is found out within half of [Config.PeerTimeout]. Messages under way
// in long packets end with [ErrPathMTU], and later ones go in packets of 1024 bytes.
//
// A receiver without memory for a message says so. Its packets are then sent again at growing
// intervals, up to a 32nd part of [Config.PeerTimeout], for as long as other messages have the
// memory; the sender's context ends that earlier.
//
// The number of packets under way follows the delay of the majority of paths and the
// receiver's grant. When there are very many senders, they take turns; a waiting sender
// has a grant of 0.
//
// The first packets between two endpoints open a session. A stranger first has to return a
// cookie, which shows that it receives at the address that it names; until then the
// endpoint keeps no state for it. With [Config.Key] the first packet carries a code made
// with the deployment's key, and the first message goes with it, if it fits into a packet that
// any link carries. A silent peer takes about
// 500 bytes. When there are [Config.MaxPeers], a new peer takes the place of one that has
// nothing under way and was silent for at least four times [Config.PeerTimeout].
//
// # Changes of the host
//
// An endpoint keeps its address while its host changes. When the IP address goes and comes
// again, the link goes down and up, the interface is renamed, or its MAC or that of a peer
// changes, messages go on within seconds. The endpoint looks its GID up again when the device
// reports a change, when an address handle or a queue pair fails, and when a peer is silent
// for a quarter of [Config.PeerTimeout]. The handles to a silent peer are made anew. While the
// IP address is gone, nothing is sent. Log lines of one cause come every ten seconds at most.
//
// # On EFA
//
// A device with SRD queue pairs delivers packets of up to 8 KiB by itself, at most once
// each, by paths of its own choice. There a smaller state machine takes the place of the
// engine. It numbers messages instead of packets, and the receiver reports one result for
// each message.
//
//	SendQueue --- message ---> Context: a peer and a service
//	                              |
//	                         message flow: numbered messages, a window of 512, credit
//	                              |
//	                      SRD queue pair: a completion for each packet
//	                              |
//	                  receiver: reassembly, order; what was taken or refused
//
// Calls, services, statuses and guarantees are the same. What differs:
//
//   - Both ends have to be on EFA: UD and SRD queue pairs cannot talk to each other.
//   - When a peer's queue pair is gone, all messages under way to the peer end as
//     Unresponsive within milliseconds; when EFA cannot reach the peer, as soon as EFA says
//     so.
//   - A receiver that its program does not let poll runs out of buffers after a while. A
//     message that finds none is retried for a tenth of a second, and then Refused.
//   - The status of a packet is that of its message.
//   - A key saves the round trip of the cookie. The first message still waits for the round
//     trip that opens the session.
//   - The queue key is random unless Config sets one, so that an endpoint does not receive
//     what was sent to a predecessor with the same queue pair number.
//   - If the device gives up the queue pair, the endpoint ends: calls return the reason.
//   - Config.Paths has no effect, and [PeerStats] has no paths.
//
// None of this was tested on hardware: tests run on simulated devices below the unchanged
// libefa.
//
// # Guarantees
//
//   - Each message gets one status, and it is true. [Delivered]: the message was delivered
//     once. [Refused], [Retransmit], [TooLarge], [PathMTU] and [Cancelled]: it was not delivered
//     and never will be. [Unresponsive]: it may have been delivered.
//   - No message is delivered twice, whatever the network does, whichever end restarts and
//     whatever is replayed. With a key, this holds across a restart of the receiver as
//     long as the hosts' clocks differ by less than the restart takes, because the first
//     message of a session names no incarnation of the receiver.
//   - Data belongs to the program again as soon as the status is known.
//   - An endpoint replies to strangers at a bounded rate, and never with more bytes than
//     they sent.
//
// # The claims of the seed
//
// The table maps the claims of EP 3398296, "Networking technologies", to the code and to
// the tests that show them. Host device and network adapter are one process here: the
// patent's "application" is the user of this package, its "adapter" is the engine.
//
//	claim  what                                          where                       test
//	1      a message names a context, which has          Context, Request.Context,   TestSend, TestMessages
//	       the destination and the service;              engine: Send, number, put
//	       numbered packets; statuses by number          Completion                  TestSchedules
//	2, 4   response: received                            wire.Response               TestWindow
//	2, 5   response: not received, retransmitted         engine: lose, makePart      TestOvertaken, TestBadWire
//	2, 6   response: dropped or to be retransmitted,     Refused, Retransmit         TestRefusalsAreKept,
//	       reported                                                                  TestRefusals, TestBadWire
//	3, 14  several send queues; the context is found     SendQueue.Post              TestQueues
//	       from destination and queue
//	7, 9   several paths                                 engine: choose              TestPathsShare, TestPaths,
//	                                                                                 TestSourcePorts
//	8, 10  sub-flows, and responses of them              engine: subFlow             TestSubFlowTimers
//	11     a timer for each sub-flow, re-initiated       engine: flies, onResponse,  TestSubFlowTimers, TestDeadPath
//	       by responses; on expiry another way           expired
//	12, 13 a network adapter, chip                       EFA, not here: software     TestSimulatedLengths
//	15     one timer, without sub-flows                  Config.Paths: 1             TestOnePath
//
// On EFA, claims 4 to 6 are onResponse, missed and finish in package offload, shown by
// TestSimulatedFaults and TestSimulatedStandstill. Claims 3 and 14 are SendQueue.Post, shown
// by TestQueues. Paths and timers (claims 7 to 11) are EFA's own.
//
// The packets and the rules are in docs/protocol/srd.md, measurements and what was tried in docs/srd.md.
package srd
