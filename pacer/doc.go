// Package pacer paces GETs, so that their responses never outrun what the network
// interface absorbs. A GET is a READ; WRITEs and SENDs are PUTs.
//
// A READ request has some 48 bytes, and its response can have megabytes. A program that
// posts READs as fast as the device takes them floods its own host: switches and the
// interface's input fill up, packets are lost and sent again, and a READ of 64 bytes
// waits behind megabytes. A pacer limits the response bytes outstanding for all queue
// pairs of a device together, and the bytes solicited per unit of time, and decides which
// request goes next.
//
//	q, err := pacer.Wrap(qp, cq) // a connected RC queue pair and its completion queue
//	b, err := q.NewBatch(16)
//	b.Add(verbs.WR{ID: 7, Op: verbs.WRRead, Flags: verbs.Signaled, Remote: remote, Local: sges})
//	n, err := b.Post()          // never waits for credit
//	n, err = q.Wait(ctx, wcs[:]) // wcs[0].ID() is 7, once, whatever it was cut into
//
// A request of the batch is held until there is credit for its response. READs that are
// longer than a slice are cut into sub-requests, which are paced one by one.
//
// [Wrap] paces a queue pair by the pacer of its device, which all queue pairs of the process
// share. The limits are the Threshold, response bytes outstanding, and the Rate, response
// bytes solicited in a second, of [Config]. PUTs have a limit of their own, Outbound. The
// responses that this host serves are the device's, and not paced. Package pfc reads the
// counters of link pause (priority flow control), and calls [Pacer.PauseLink] and
// [Pacer.Congested] accordingly.
//
// # When to use it
//
// A pacer helps where one host READs from several others, or from one with a faster link than
// its own, in pieces of many KiB, while other requests of this host must be quick or the network
// loses packets. It does not help where the READs under way have less than about 64 KiB in all,
// where the servers are the limit, or where this host is the one that is read from.
//
// The threshold should keep the link busy, and no more: its bandwidth times the round trip of a
// READ on an idle path, and half as much again. For 25 Gbit/s and 5 us that is 24 KiB, with which
// a simulated link is busy for 99.8 % of the time (docs/benchmarks.md). Bytes beyond it wait in
// the switch, in front of everything else for this host; with fewer the link idles. If peers
// differ in distance, the farthest one counts. To find the value, halve it until the throughput
// falls, and take the one before; Tune does so while the program runs.
//
// # Guarantees
//
//   - Credit is counted by request packet. It comes back exactly once: with the
//     completion, the error or the flush, or when the post fails. A request is reported
//     as successful only when all of it has completed.
//   - A response that is larger than the threshold goes alone. Nothing waits for ever: a
//     request that was passed over MaxPasses times keeps its turn, and the others wait
//     for it.
//   - Flows (queue pairs) of a class share evenly, however many share a slicing unit (Units
//     in [Config]), which takes them in turn: one request packet each, or bytes by weight
//     under the policy Deficit, which is meant for READs of different lengths. The shares
//     are even within a few request packets of each flow.
//   - A queue pair with a dead peer keeps credit from others only for Overdue in
//     [Config], not until the transport gives up.
//   - Credit of [Pacer.Acquire] counts until [Credit.Release]. The tuner (Tune in [Config])
//     measures the delay of the idle path once a second. For that it waits at most 250 ms
//     until nothing is outstanding, and only once for each credit.
//   - GETs and atomics of a queue pair go in order, and so do its PUTs. PUTs overtake
//     held GETs, as verbs allow, but they overtake nothing with a fence and nothing
//     behind one. Completions come in that order, and the completion of a request says
//     that the unsignaled ones before it are over. A failed request does not wait for
//     READs that are kept to be issued again.
//   - The pacer keeps to max_rd_atomic of the queue pair, and to what Device in [Config]
//     says of the device.
//   - Small READs (Small in [Config]) have a part of the threshold for themselves.
//   - [QP.Recover] issues again only those pieces of READs that the connection lost
//     (Reissue in [FlowConfig]). A READ that was itself wrong ends with its error.
//   - A class that was idle gets its share from when it begins again, and not what it
//     missed.
//   - The threshold is the one in [Config], or the pacer finds it from the delay of
//     sub-requests (Tune). Tune is for peers of about the same distance: it takes one
//     response that comes late by another way for one that waited in front of this host.
//
// # Costs
//
// All requests of a paced queue pair are signaled, and a request that is cut completes
// once for each piece. The completion queue holds them all: Wrap makes it as long as the
// queue pair may need. The warm path does not allocate. While nothing is held, a request
// bypasses the queues. The program polls completions, as ever. If it does not, the pacer
// polls for held requests within 16 ms and then every 2 ms, as long as anything is
// under way.
//
// The published design that the package follows is in docs/background.md.
package pacer
