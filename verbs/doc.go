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
// A failed work request is a [*WCError] that matches its [WCStatus]. No input makes the
// package panic.
//
// Concurrency: everything may be used by any number of goroutines, except that a [Batch]
// or [RecvBatch] belongs to one goroutine at a time. A completion goes to the goroutine that
// polls it first. So goroutines that share a queue pair need a [Requester] and a [Receiver],
// which give each its own completions; protocols with many queue pairs need a [Dispatcher].
//
// Functions of the program ([CompletionHandler.Ended], [ReceiverConfig.Arrived], the methods of an
// [Handler], [LinkConfig.Setup], [LinkConfig.Greet], functions that serve links) may panic or
// call [runtime.Goexit]. The package first releases what it
// holds, so other goroutines go on, and Close works. Then the panic or Goexit goes on in the
// goroutine that called the function, perhaps one that waits for something else. If Ended
// ends so, its list has failed, which ends the queue pair; a goroutine that waits for a
// request of its own goes on waiting until the device is done with that.
//
// End of a queue pair: [QP.Done] and [QP.Err] report when and why a queue pair ended. By default a peer
// that is gone is detected half a second after the next request.
//
// Peers that know each other's IP address need no exchange of endpoints: package rdmacm
// connects their queue pairs, and package stream makes a [net.Conn] of such a connection.
//
// # Costs
//
// The data path ([Batch.Post], [RecvBatch.Post], [CQ.Poll], [CQ.Wait] with an unchanged
// context) crosses into C once per batch and allocates nothing. A waiting goroutine parks
// in the runtime's network poller; no thread is blocked.
package verbs
