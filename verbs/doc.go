// Package verbs is RDMA for Go: devices, registered memory, queue pairs,
// completion queues, and READ, WRITE, SEND and atomics on them, over
// rdma-core's libibverbs.
//
// A client that reads 64 bytes of a server's memory:
//
//	dev, err := verbs.Open("mlx5_0", verbs.DeviceConfig{})
//	pd, err := dev.AllocPD()
//	cq, err := dev.CreateCQ(verbs.CQConfig{})
//	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq})
//	mr, err := pd.AllocMR(4096, verbs.MRConfig{})
//	local, err := qp.Endpoint()
//	remote, err := verbs.Exchange(ctx, conn, local) // over a TCP connection
//	err = qp.Connect(remote, verbs.ConnectConfig{})
//	batch, err := qp.NewBatch(1)
//	batch.Read(1, verbs.Signaled, remote.Regions[0].At(0), mr.SGE(0, 64))
//	_, err = batch.Post()
//	var wcs [1]verbs.WC
//	_, err = cq.Wait(ctx, wcs[:])
//	err = wcs[0].Err() // nil: mr.Bytes()[:64] holds the server's bytes
//
// # Guarantees
//
// Lifetimes: every object has an idempotent Close. A parent refuses to close
// with [ErrInUse] while children live, so nothing is ever destroyed under
// something that uses it; a call on a closed object answers [ErrClosed]. Nothing
// is closed by the garbage collector.
//
// Memory: registered memory never moves and is never collected while it is
// registered; who may touch which byte when is told at [MR].
//
// Errors: decisions are sentinels ([ErrQueueFull], [ErrState], ...), found with
// [errors.Is]; the text names the operation, the object, the errno and the
// likely cause. A failed work request is a [*WCError] that matches its
// [WCStatus]. No input makes the package panic.
//
// Concurrency: everything may be used by any number of goroutines, except that
// a [Batch] or [RecvBatch] belongs to one at a time.
//
// Peers that know each other's IP address need no exchange of their own: a [CM]
// connects queue pairs, and [StreamDial] makes a [net.Conn] of such a connection.
//
// # Costs
//
// The data path ([Batch.Post], [RecvBatch.Post], [CQ.Poll], [CQ.Wait] with an
// unchanged context) crosses into C once per batch and allocates nothing. A
// waiting goroutine parks in the runtime's network poller; no thread is
// blocked.
package verbs
