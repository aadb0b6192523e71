// Package pacer paces GETs, so that their responses never outrun what the network
// interface absorbs.
//
// A READ request has some 48 bytes, its response can have megabytes: whoever posts
// READs as fast as the device takes them floods itself. Switches and the interface's
// input fill up, packets are lost and sent again, and a READ of 64 bytes waits behind
// megabytes. A pacer bounds the response bytes outstanding of all queue pairs of a
// device together, and the bytes solicited in a time, and decides whose turn it is.
//
//	q, err := pacer.Wrap(qp, cq) // a connected RC queue pair and its completion queue
//	b, err := q.NewBatch(16)
//	b.Read(7, verbs.Signaled, remote, mr.SGE(0, 1<<20))
//	n, err := b.Post()          // never waits for credit
//	n, err = q.Wait(ctx, wcs[:]) // wcs[0].ID() is 7, once, whatever it was cut into
//
// # The picture
//
// It is that of the network interface controller (NIC) in the seed; the names are
// the seed's, with ours behind them where they differ.
//
//	  program: Batch.Post of GETs, PUTs, atomics       peers' READs: Pacer.Served
//	                    |                                  | FlowConfig.Served
//	command queues  [initiator commands]          [target commands]      Shaper.Submit
//	                    |   a scheduler each, in turn      |
//	                    +--------------+-------------------+
//	                             hash of the flow                        table
//	outbound engine (OXE):             |
//	flow queues      [flow 0]   [flow 1]   [flow 2] ...                  flow, one a queue pair
//	                    |          |          |      assigned as units become free
//	slicing units    (MCU 0)    (MCU 1)    (MCU 2)                       unit.go
//	  (MCU)          sub-requests down to the MTU; OrdPktActive: request packets
//	                 outstanding, at its limit it stops; RspPktLen: bytes of the response
//	                    |          |          |
//	traffic shaper   arbitration: round robin, load, priority,          arbiter.go
//	                 availability, deficit-weighted; traffic classes, bandwidth shares;
//	                 deadlines (Batch.Deadline), promotion after waiting    hurry.go
//	                 speed adjustment: RspPktLen within the threshold?  limits.go
//	                    | yes: selected     \ no: passed over, the next one is looked at
//	output buffer    [QP.batch] -> send queue of the queue pair -> switch fabric   QP.flush
//	tracking (PCT)   source table: credit by request packet, returned once   credit.go
//	                 retry buffer: sub-requests to be issued again      flow.failed, QP.Recover
//	                    | completion, error, flush, failed post
//	event (EE)       one completion a request, under the program's number  CQ
//
// Link pause (priority flow control) comes in by [Pacer.PauseLink] and [Pacer.Flooded],
// which package pfc calls as the counters of the link say. PUTs and the responses that
// this host serves share an outbound budget ([Config] Outbound).
//
// The rest of the seed's figures is the device's: host interface (HI) and high-speed
// network interface (HNI), address translation (ATU), and the inbound engine (IXE) with
// parser, packet buffer, list processing (LPE), message state table (MST) and DMA.
//
// # What it guarantees
//
//   - Credit is counted by request packet. It comes back with the completion, the
//     error, the flush, or when the post failed, and once. What is not a completion of
//     all of a request is never told as a success.
//   - A response that is larger than the threshold goes alone. Nothing waits for ever: a
//     request that was passed over MaxPasses times is waited for, and keeps its turn.
//   - Flows of a class share evenly, however many there are for each slicing unit: a
//     request packet in turn, or bytes by weight under the policy Deficit, which is the
//     one for READs of different lengths. It shows within a few request packets of each.
//   - A queue pair whose peer is dead keeps credit from others for [Config] Overdue, and
//     not until the transport gives up.
//   - GETs and atomics of a queue pair go in order, and so do its PUTs. PUTs overtake
//     held GETs, which verbs allow, but nothing with a fence and nothing behind one.
//     Completions come in that order; that of a request says that the unsignaled ones
//     before it are over. What fails does not wait for READs that are kept to be issued
//     again.
//   - max_rd_atomic of the queue pair is kept, and what [Config] Device says of the
//     device.
//   - Small READs ([Config] Small) have a part of the threshold that only they use.
//   - After [QP.Recover] only those pieces of READs are issued again that the connection
//     lost ([FlowConfig] Reissue). A READ that was wrong ends with its error.
//   - A class that was idle has its share from when it begins, not what it missed.
//   - The threshold is what [Config] says, or is found from the delay of sub-requests
//     (Tune, which [For] sets).
//   - Processes can share a threshold ([Pacer.ShareThreshold]). The part of one that dies
//     is the others' at once; so is credit for responses that have come to one that does
//     not poll. One that is stopped keeps its part.
//
// Figure 4A of the seed speeds a request on whose response is "within" the threshold
// in both branches; this package follows the claims: it holds those that exceed it.
//
// # What it costs
//
// All requests of a paced queue pair are signaled, and cut ones complete once for each
// piece, so the completion queue has as much to do as there are pieces: Wrap makes it
// as long as the queue pair may need. The warm path does not allocate. While nothing is
// held, a request goes without the way through the queues. Completions are polled by the
// program, as ever; what is held while nobody polls is looked after within 16 ms and then
// every 2 ms, as long as anything is under way.
//
// # Claims
//
// The claims of the seed, where each is, and the test that shows it.
//
//	1   NIC: command queue, type and length, held above the threshold   shaper.Next, shaper.RspPktLen     TestPassingOver
//	2   the data request is an RDMA GET                                  shaper.Get, Batch.Read            TestReadsOfAllSizes
//	3   sub-requests, managed independently                              shaper.Grant, Config.Slice        TestOnlyWhatFailedIsIssuedAgain
//	4   packets, forwarded to the fabric                                 QP.flush                          TestReadsOfAllSizes
//	5   several MCUs, arbitration                                        shaper.Next, Config.Units         TestRoundRobinTakesTurns
//	6   another MCU is selected, and the first when within               shaper.Next                       TestPassingOver
//	7   flow queues, one a flow, allocated to MCUs                       shaper.AddFlow                    TestUnitsGoRound
//	8   the threshold is the rate of absorption                          Config.Rate, Config.Tune          TestTunerFindsTheThreshold
//	9   method: store, determine, hold                                   shaper.Submit, shaper.Next        TestPassingOver
//	10  of an RDMA GET                                                   shaper.Get, Batch.Read            TestReadsOfAllSizes
//	11  with sub-requests                                                shaper.Grant                      TestOnlyWhatFailedIsIssuedAgain
//	12  with packets to the fabric                                       QP.flush                          TestReadsOfAllSizes
//	13  with arbitration                                                 shaper.Next                       TestAvailability
//	14  passing over                                                     shaper.Next                       TestPassedOverTooOften
//	15  with flow queues                                                 shaper.AddFlow                    TestFlowsAreFound
//	16  at the rate of absorption                                        Config.Rate, Config.Tune          TestSolicitedRate
//	17  computer system: processor, host interface, NIC                  Wrap                              TestWrapByDevice
//	18  with sub-requests                                                shaper.Grant                      TestScatteredReads
//	19  with arbitration                                                 Config.Policy                     TestDeficitFollowsWeights
//	20  passing over                                                     shaper.Next                       TestSmallOnesHaveAReserve
//
// TestClaims checks that each of them is there.
package pacer
