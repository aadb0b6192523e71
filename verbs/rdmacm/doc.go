// Package rdmacm connects queue pairs by IP address, over the connection manager of
// rdma-core (librdmacm): its messages find the peer, carry some private data, and tell
// each side when the other goes.
//
// A client that reads 64 bytes of a server's memory:
//
//	cm, err := rdmacm.Open(rdmacm.Config{})
//	link, err := cm.DialLink(ctx, "10.77.0.2:7471", verbs.LinkConfig{})
//	mr, err := link.AllocMR(4096, verbs.MRConfig{})
//	r, err := link.Requester()
//	err = r.Read(ctx, link.Regions()[0].At(0), mr.SGE(0, 64))
//
// and the server:
//
//	listener, err := cm.Listen("10.77.0.2:7471", rdmacm.ListenConfig{})
//	cfg := verbs.LinkConfig{Setup: verbs.OfferMemory(memory, verbs.RemoteRead)}
//	err = cm.ServeLinks(ctx, listener, cfg, serve, nil)
//
// Below links, [CM.Dial] and [Request.Accept] make a [Conn]. Its queue pair is one that
// the program makes in [ConnConfig.Setup], or one that they make themselves. The peer may
// be any program on librdmacm. For datagrams [CM.DialUD], [CM.LookUp] and [CM.Join] find
// services and groups. Package stream makes a net.Conn of a connection. The documentation of
// package verbs says when to use which.
//
// # Guarantees
//
// Queue pairs, memory and completion queues are those of package verbs. So are the
// errors, to which this package adds sentinels; a closed object returns
// [verbs.ErrClosed].
//
// When the peer closes its end, or its program dies, the queue pair goes to
// [verbs.StateError] and [Conn.Err] matches [ErrDisconnected]. Completions of what was
// received before are in the completion queue, and outstanding requests are flushed. A
// queue pair that fails ends its connection, and the peer is notified at once.
//
// When the peer's host dies, no message says so. Links of this package and streams send an empty
// WRITE every 30 s, or as often as their configuration says, which ends the connection
// when it is not acknowledged; for a [Conn] there is [verbs.QPConfig].KeepAlive.
//
// Everything may be used by any number of goroutines. No call blocks a thread. Calls that
// wait end with their context, or with Close. A [CM] has one goroutine, and a connection
// none.
package rdmacm
