// Package stream provides byte streams over RDMA WRITE: a [net.Conn] and a [net.Listener]
// for programs that use those.
//
// A server:
//
//	cm, err := rdmacm.Open(rdmacm.Config{})
//	listener, err := stream.Listen(cm, "10.77.0.2:7472", stream.Config{})
//	err = http.Serve(listener, handler)
//
// and a client:
//
//	conn, err := stream.Dial(ctx, cm, "10.77.0.2:7472", stream.Config{})
//	_, err = conn.Write([]byte("hello"))
//
// Each side has a ring of registered memory, which the peer's device writes to. Write
// copies into a send buffer and Read out of the ring. Programs can fill and read both in
// place with [Conn.Reserve], [Conn.Commit], [Conn.Peek] and [Conn.Discard].
//
// # Guarantees
//
// A [Conn] keeps the rules of package net: bytes come in order and once, deadlines and
// Close end calls under way, a half-closed stream goes on in the other direction, and
// errors are those of a TCP connection ([io.EOF], [net.ErrClosed],
// [os.ErrDeadlineExceeded], ECONNRESET, EPIPE). One reader, one writer and Close may run
// at the same time; further readers and writers wait for their turn. Close waits
// up to two seconds until the peer's device has acknowledged what was written, and not at all
// if nothing was written lately. The loss of the peer's host is noticed after [Config.KeepAlive].
//
// A peer that breaks the protocol ends its own stream, with [verbs.ErrMessage], and no
// other. All connections that are not yet accepted together get no more of a listener's
// memory than [Config.Pending] allows. Nothing is encrypted.
//
// # Costs
//
// A stream pins twice [Config.Buffer] on each side. Read and Write allocate nothing. A
// goroutine that waits is parked in the network poller; no thread is blocked.
package stream
