package server

import (
	"net"
	"sync"
)

// queue is a listener of connections that have been admitted.
type queue struct {
	addr  net.Addr
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

func newQueue(addr net.Addr) *queue {
	return &queue{addr: addr, conns: make(chan net.Conn), over: make(chan struct{})}
}

// put reports whether the connection was accepted: not if the queue is closed.
func (q *queue) put(conn net.Conn) bool {
	select {
	case q.conns <- conn:
		return true
	case <-q.over:
		return false
	}
}

// Accept implements [net.Listener].
func (q *queue) Accept() (net.Conn, error) {
	select {
	case conn := <-q.conns:
		return conn, nil
	case <-q.over:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (q *queue) Close() error {
	q.once.Do(func() { close(q.over) })
	return nil
}

// Addr implements [net.Listener].
func (q *queue) Addr() net.Addr { return q.addr }
