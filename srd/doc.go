// Package srd is reliable datagrams, out of order, over many network paths, without
// connections: the transport service that EFA has as SRD, by EFA itself or by an engine of
// our own over UD queue pairs. Any endpoint sends to any other whose address it knows, by
// messages of any length, and is told what became of each.
//
//	ep, err := srd.Open(srd.Config{PD: pd})
//	b, err := ep.Addr().MarshalBinary() // give it to anyone
//
//	err = ep.Send(ctx, peer, header, body) // nil: it was delivered, once
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
// A message is cut into packets, which are delivered to the peer in any order; the
// message is delivered when it is whole. A response names what arrived by number. A packet
// that a later one of the same sub-flow overtook is lost, and goes by another path; so
// does one whose sub-flow's timer ends. The timer begins anew with each response to the
// sub-flow. Paths by which packets arrive are used again, the less busy ones first, or all in
// turn, a list of packets each, while none is worse than the others. One that loses more than others, or is silent, is retired and probed until it is sound
// again; two are always in use. The window of packets under way follows the delay of the
// majority of paths, and the receiver's grant; of very many senders, those that wait for their turn
// have none.
//
// Peers find each other by the first packets. A stranger is asked to show, by a cookie,
// that it receives where it says; until then nothing is kept of it. With [Config.Key] the
// first packet carries a code of the deployment's key, and the first message at once.
// What is known of a peer that is silent takes about 500 bytes; of the peers beyond
// [Config.MaxPeers] those that were silent for four times [Config.PeerTimeout] make room.
//
// # On EFA
//
// A device with SRD queue pairs delivers packets by itself, of up to 8 KiB, by paths of its
// choice, at most once each. There a driver and a smaller machine stand in place
// of the engine: messages are numbered instead of packets, and the receiver says one word
// about each.
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
//   - Both ends have to be EFA's: a UD queue pair does not hear an SRD one.
//   - A peer whose queue pair is gone is Unresponsive within milliseconds, one that EFA
//     cannot reach as soon as EFA says so; then all messages that are under way to it are.
//   - A receiver whose program does not let it poll has no buffers after a while. What
//     finds none is tried for a tenth of a second, and Refused.
//   - The status of a packet is that of its message.
//   - A key saves the cookie's round trip; the first message waits for the other one.
//   - The queue key is random unless Config has one, so that an endpoint does not hear what
//     was sent to a predecessor with the same queue pair number.
//   - A queue pair that the device gives up ends the endpoint: calls answer why.
//   - Config.Paths, MinTimeout and Target have no effect, and [PeerStats] no paths.
//
// None of it was tested on hardware: tests run on devices that are simulated below the
// unchanged libefa.
//
// # Guarantees
//
//   - Each message has one status, and it is true: [Delivered] was delivered once,
//     [Refused], [NoQueue], [Retransmit] and [Cancelled] was not and never will be,
//     [Unresponsive] perhaps was. (An [Idempotent] message may have been delivered
//     whatever its status.)
//   - No message is delivered twice, whatever the network does, whoever restarts and
//     whatever is replayed, but by [Idempotent], and by [Unreliable] if the network
//     doubles it. With a key, this holds across a restart of the receiver as long as the
//     hosts' clocks differ by less than the restart takes: the first message of a
//     session names no incarnation.
//   - Data is the program's again when its status is known.
//   - An endpoint answers strangers at a bounded rate, and never with more bytes than
//     they sent.
//
// # The claims of the seed
//
// EP 3398296, "Networking technologies". Host device and network adapter are one
// process here: the "application" is the user of this package, the "adapter" the engine.
//
//	claim  what                                          where                       test
//	1      a message names a context, which has          Context, Request.Context,   TestSend, TestMessages
//	       the destination and the service;              engine: Send, number, put
//	       numbered packets; statuses by number          Completion                  TestSchedules
//	2, 4   response: received                            wire.Response               TestWindow
//	2, 5   response: not received, retransmitted         engine: lose, makePart      TestOvertaken, TestBadWire
//	2, 6   response: dropped or to be retransmitted,     Refused, NoQueue,           TestRefusalsAreKept,
//	       reported                                      Retransmit                  TestRefusals, TestBadWire
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
// On EFA claims 4 to 6 are offload: onResponse, missed and finish, shown by TestSimulatedFaults
// and TestSimulatedStandstill; claims 3 and 14 are SendQueue.Post, by TestQueues; EFA has
// paths and timers (claims 7 to 11) itself.
//
// Decisions that the issue leaves open are in docs/srd.md.
package srd
