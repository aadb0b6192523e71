package native

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/srd"
	"github.com/goverbs/goverbs/verbs"
)

const (
	window  = 256 // messages that are sent and not yet known to be delivered
	sending = 32  // messages of a post
	bulk    = 64 << 10
)

// srdRows are on UD queue pairs of mlx5, and again on EFA, which has no loop in C beside them.
func srdRows() []row {
	list := srdRowsOn("", devices)
	list[0].baseline, list[0].target = udLoop, nil
	ours := list[0].open
	list[0].open = func(o *opened) (operations, operations, error) {
		pingPong, _, err := ours(o)
		if err != nil {
			return nil, nil, err
		}
		es, err := o.ends()
		if err != nil {
			return nil, nil, err
		}
		cs, _, err := o.datagrams(es, verbs.CQConfig{PollOnly: true})
		return pingPong, pingPongInC(cs), err
	}
	return append(append(append(list, waitedInC()), polledSends()...), srdRowsOn("_efa", [2]string{"efa_0", "efa_0"})...)
}

// polledSends are messages that are waited for by endpoints that poll, as a service with CPUs of its own does.
func polledSends() (list []row) {
	for _, size := range []int{read, 8000} {
		list = append(list, row{name: fmt.Sprintf("srd_send_%dB_polled", size), few: 40, waited: true, open: func(o *opened) (ours, base operations, err error) {
			p, err := o.peers(devices, 100*time.Microsecond)
			if err != nil {
				return nil, nil, err
			}
			ours, err = srdSend(o, p, size)
			return ours, nil, err
		}})
	}
	return list
}

func srdRowsOn(suffix string, on [2]string) []row {
	between := func(f func(o *opened, p *peers) (operations, error)) func(o *opened) (ours, base operations, err error) {
		return func(o *opened) (ours, base operations, err error) {
			p, err := o.peers(on, 0)
			if err != nil {
				return nil, nil, err
			}
			ours, err = f(o, p)
			return ours, nil, err
		}
	}
	return []row{
		{name: "srd_pingpong_64B" + suffix, few: 10, open: between(srdPingPong)},
		{name: "srd_send_64B" + suffix, few: 40, waited: true, open: between(func(o *opened, p *peers) (operations, error) { return srdSend(o, p, read) })},
		{name: "srd_send_8000B" + suffix, few: 40, waited: true, open: between(func(o *opened, p *peers) (operations, error) { return srdSend(o, p, 8000) })},
		{name: "srd_rate_64B" + suffix, rate: true, target: measure.AtLeast(1e6), open: between(func(o *opened, p *peers) (operations, error) { return srdStream(o, p, read) })},
		{name: "srd_bulk" + suffix, few: 40, rate: true, unit: "GB/s", factor: bulk / 1e9, target: measure.AtLeast(4),
			open: between(func(o *opened, p *peers) (operations, error) { return srdStream(o, p, bulk) })},
	}
}

// peers are two endpoints.
type peers struct{ a, b *srd.Endpoint }

func (o *opened) peers(on [2]string, pollFor time.Duration) (*peers, error) {
	var eps [2]*srd.Endpoint
	for i, device := range on {
		e, err := o.end(device)
		if err != nil {
			return nil, err
		}
		if eps[i], err = srd.Open(srd.Config{PD: e.pd, GID: e.gid, PollFor: pollFor}); err != nil {
			return nil, err
		}
		o.add(eps[i])
	}
	return &peers{eps[0], eps[1]}, nil
}

// receiving has an endpoint receive until the row is closed.
func (o *opened) receiving(ep *srd.Endpoint) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		var ms [sending]srd.Message
		for {
			n, err := ep.Receive(ctx, ms[:])
			if err != nil {
				done <- err
				return
			}
			ep.Release(ms[:n]...)
		}
	}()
	o.add(closer(func() error {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}))
}

// sender keeps messages of one kind under way.
type sender struct {
	ep       *srd.Endpoint
	q        *srd.SendQueue
	rs       []srd.Request
	ms       [1]srd.Message
	cs       [window]srd.Completion
	underWay int
}

func newSender(o *opened, from, to *srd.Endpoint, n, size int) (*sender, error) {
	q, err := from.NewQueue(srd.QueueConfig{})
	if err != nil {
		return nil, err
	}
	o.add(q)
	s := &sender{ep: from, q: q, rs: make([]srd.Request, n)}
	c, data := from.Destination(to.Addr(), srd.Reliable), [][]byte{make([]byte, size)}
	for i := range s.rs {
		s.rs[i] = srd.Request{Destination: c, Data: data}
	}
	return s, nil
}

// post sends n messages.
func (s *sender) post(n int) error {
	n, err := s.q.Post(s.rs[:n]...)
	s.underWay += n
	return err
}

// reap waits until no more messages than that are under way.
func (s *sender) reap(ctx context.Context, left int) error {
	for s.underWay > left {
		n, err := s.q.Wait(ctx, s.cs[:])
		if err != nil {
			return err
		}
		for _, c := range s.cs[:n] {
			if err := c.Status.Err(); err != nil {
				return err
			}
		}
		s.underWay -= n
	}
	return nil
}

// srdPingPong is a message each way, in turn, both ends in one goroutine.
func srdPingPong(o *opened, p *peers) (operations, error) {
	a, err := newSender(o, p.a, p.b, 1, read)
	if err != nil {
		return nil, err
	}
	b, err := newSender(o, p.b, p.a, 1, read)
	if err != nil {
		return nil, err
	}
	return each(func(ctx context.Context) error {
		for _, way := range [][2]*sender{{a, b}, {b, a}} {
			from, to := way[0], way[1]
			if err := from.post(1); err != nil {
				return err
			}
			n, err := to.ep.Receive(ctx, to.ms[:])
			if err != nil {
				return err
			}
			to.ep.Release(to.ms[:n]...)
		}
		if err := a.reap(ctx, sending); err != nil {
			return err
		}
		return b.reap(ctx, sending)
	}), nil
}

// srdSend is a message that is waited for, to a goroutine that receives.
func srdSend(o *opened, p *peers, size int) (operations, error) {
	o.receiving(p.b)
	c, data := p.a.Destination(p.b.Addr(), srd.Reliable), make([]byte, size)
	return each(func(ctx context.Context) error { return c.Send(ctx, data) }), nil
}

// srdStream is messages from one goroutine to another.
func srdStream(o *opened, p *peers, size int) (operations, error) {
	o.receiving(p.b)
	s, err := newSender(o, p.a, p.b, sending, size)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, n int) (time.Duration, error) {
		start := time.Now()
		for sent := 0; sent < n; {
			k := min(sending, n-sent)
			if err := s.post(k); err != nil {
				return 0, err
			}
			sent += k
			if err := s.reap(ctx, window-sending); err != nil {
				return 0, err
			}
		}
		err := s.reap(ctx, 0)
		return time.Since(start), err
	}, nil
}
