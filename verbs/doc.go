// Package verbs is RDMA for Go: devices, registered memory, queue pairs, completion
// queues, and READ, WRITE, SEND and atomics on them, over rdma-core's libibverbs.
//
// A client that reads 64 bytes of a server's memory:
//
//	link, err := verbs.DialLink(ctx, "10.77.0.2:7471", verbs.LinkConfig{})
//	defer link.Close()
//	mr, err := link.AllocMR(4096, verbs.MRConfig{})
//	r, err := link.Requester()
//	err = r.Read(ctx, link.Regions()[0].At(0), mr.SGE(0, 64))
//	// nil: mr.Bytes()[:64] holds the server's bytes
//
// and the server:
//
//	cfg := verbs.LinkConfig{Setup: verbs.OfferMemory(memory, verbs.RemoteRead)}
//	err = verbs.ServeLinks(ctx, listener, cfg, serve, nil)
//
// A [Link] finds the device and its GID by the connection's own address, creates
// protection domain, queues and queue pair, and connects. [NewLink] does the same over a
// connection that the program already has. Each step can also be taken alone: [Open],
// [Device.AllocPD], [Device.CreateCQ], [PD.CreateQP], [PD.AllocMR], [Exchange],
// [QP.Connect].
//
// A [Requester] serves any number of goroutines, and a [Receiver] hands them the messages
// that arrive. Both are built on batches of work requests and completions, which a
// program can use itself if it keeps many requests outstanding and matches completions
// to them:
//
//	batch, err := qp.NewBatch(16)
//	batch.Read(1, verbs.Signaled, remote.At(0), mr.SGE(0, 64))
//	_, err = batch.Post()
//	var wcs [16]verbs.WC
//	n, err := cq.Wait(ctx, wcs[:])
//	err = wcs[0].Err() // of the request with number wcs[0].ID()
//
// # Guarantees
//
// Lifetimes: every object has an idempotent Close. A parent refuses to close with
// [ErrInUse] while children live, so nothing is ever destroyed under something that uses
// it; a call on a closed object returns [ErrClosed]. The garbage collector closes
// nothing.
//
// Memory: registered memory never moves and is not collected while it is registered. The
// comment of [MR] says when the program and the device may touch which byte.
//
// Errors: decisions are sentinels ([ErrQueueFull], [ErrState], ...), found with
// [errors.Is]; the text names the operation, the object, the errno and the likely cause.
// A failed work request is a [*WCError] that matches its [WCStatus]. If the error of a
// [Requester] matches no WCStatus and is no [*InFlightError], nothing of the list was executed;
// docs/errors.md has the errors of all packages by that meaning. No input makes the package panic.
//
// Concurrency: everything may be used by any number of goroutines, except that a [Batch]
// or [RecvBatch] belongs to one goroutine at a time. A completion goes to the goroutine that
// polls it first. So goroutines that share a queue pair need a [Requester] and a [Receiver],
// which give each its own completions; protocols with many queue pairs need a [Dispatcher].
//
// Callbacks ([CompletionHandler.Ended], [ReceiverConfig.Arrived], the methods of a [Handler],
// [LinkConfig.Setup], [LinkConfig.Greet], functions that serve links) may panic or call
// [runtime.Goexit]. The package releases its locks first, so other goroutines go on and Close works.
// The panic then ends the goroutine that called the callback, which may be one that polls for
// another request: if that is still with the device, the panic goes on when it has completed. If
// Ended panics, its list has failed, and the queue pair ends.
//
// End of a queue pair: [QP.Done] and [QP.Err] report when and why a queue pair ended. By default a
// peer that is gone is detected half a second after the next request.
//
// # Links, the connection manager, streams
//
// [DialLink] needs a TCP connection to a peer that uses this package. It makes RC, UC and UD queue
// pairs, offers up to [MaxRegions] regions, reports a path with a smaller MTU than both ends, and
// lets the program authenticate its clients first ([LinkConfig.Greet], or [NewLink] over TLS): use
// it unless you need what the others have.
//
// Package rdmacm makes a [Link] without TCP, by the connection manager, where RDMA alone gets
// through. Such a link is RC, and has room for 52 bytes of the client's [Offer] and 192 of the
// server's. The package also connects to programs on librdmacm, and finds datagram services and
// multicast groups. Package stream makes a [net.Conn] of a connection of rdmacm, for code that is
// written for one. All three notice when the peer's program or host is gone.
//
// # Costs
//
// The data path ([Batch.Post], [RecvBatch.Post], [CQ.Poll], [CQ.Wait] with an unchanged
// context) crosses into C once per batch and allocates nothing. A waiting goroutine parks
// in the runtime's network poller; no thread is blocked.
package verbs
