// Package serve runs servers of links: a goroutine for each client, until the
// server's context ends.
package serve

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// Clients serves each client that accept returns in a goroutine of its own. It
// ends when ctx does, with nil, or with the error of accept, when all clients have
// been served; their context ends with the loop, whatever ended that. accept may
// return a client after the end of its context. Under a context that has ended already
// Clients accepts nothing, and returns its error.
func Clients(ctx context.Context, accept func(context.Context) (client func(context.Context), err error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var clients sync.WaitGroup
	defer clients.Wait()
	each, stop := context.WithCancel(ctx)
	defer stop()
	for {
		client, err := accept(ctx)
		if err == nil {
			clients.Go(func() { client(each) })
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
}

// queuePair is what Link needs of a link's queue pair.
type queuePair interface {
	Done() <-chan struct{}
	Err() error
}

// Link calls a program's function with a link, and then closes the link. The function's
// context ends with the queue pair, and the error is the queue pair's then.
func Link[L interface {
	io.Closer
	QP() Q
}, Q queuePair](ctx context.Context, l L, use func(context.Context, L) error) (err error) {
	defer func() { err = errors.Join(err, l.Close()) }()
	inner, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	qp := l.QP()
	go func() {
		select {
		case <-qp.Done():
			stop(qp.Err())
		case <-inner.Done():
		}
	}()
	err = use(inner, l)
	if cause := context.Cause(inner); cause != nil && errors.Is(err, inner.Err()) {
		return cause
	}
	return err
}

// Tell calls failed, which may be nil, with the error of a client, unless the server
// ends or the peer said goodbye.
func Tell(ctx context.Context, failed func(net.Addr, error), who net.Addr, err, goodbye error) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, goodbye) && failed != nil {
		failed(who, err)
	}
}
