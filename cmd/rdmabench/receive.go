package main

import (
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// receiver keeps receives posted on a queue pair. All of them go to the same
// place: the data are not looked at.
type receiver struct {
	batch *verbs.RecvBatch
	id    uint64
	where verbs.SGE
	owed  int // receives consumed and not posted again
}

func newReceiver(s *session, l *link, index int) (*receiver, error) {
	batch, err := l.qp.NewRecvBatch(min(s.recvDepth(), 64))
	if err != nil {
		return nil, err
	}
	size := s.p.Size
	if s.p.Transport == "UD" {
		size += grhLen
	}
	return &receiver{batch: batch, id: uint64(index), where: l.mr.SGE(s.area(), size)}, nil
}

// post posts n receives.
func (r *receiver) post(n int) error {
	for n > 0 {
		now := min(n, r.batch.Cap())
		for range now {
			r.batch.Recv(r.id, r.where)
		}
		if _, err := r.batch.Post(); err != nil {
			return err
		}
		n -= now
	}
	return nil
}

// consumed counts n messages and posts receives for them, some at a time.
func (r *receiver) consumed(n int) error {
	if r.owed += n; r.owed < (r.batch.Cap()+1)/2 {
		return nil
	}
	n, r.owed = r.owed, 0
	return r.post(n)
}

// quietTime is how long nothing must arrive after the client is done, until
// datagrams that did not are taken for lost.
const quietTime = 50 * time.Millisecond

// receive counts the messages of a bandwidth test until the client is done,
// those of the warm-up not.
func (s *session) receive(ctx context.Context) (uint64, error) {
	q := s.queue(s.recvCQ)
	wcs := make([]verbs.WC, 64)
	total := 0
	for {
		n, err := q.take(ctx, wcs)
		if err != nil {
			if !errors.Is(context.Cause(ctx), errPeerDone) {
				return 0, err
			}
			break
		}
		if total, err = s.received(wcs[:n], total); err != nil {
			return 0, err
		}
	}
	for quiet := time.Now(); time.Since(quiet) < quietTime; {
		n, err := s.recvCQ.Poll(wcs)
		if err == nil {
			total, err = s.received(wcs[:n], total)
		}
		switch {
		case err != nil:
			return 0, err
		case n > 0:
			quiet = time.Now()
		default:
			time.Sleep(time.Millisecond)
		}
	}
	return uint64(max(total-s.p.Warmup*s.p.QPs, 0)), nil
}

func (s *session) received(wcs []verbs.WC, total int) (int, error) {
	for i := range wcs {
		if err := wcs[i].Err(); err != nil {
			return total, err
		}
		if err := s.links[wcs[i].ID()].recv.consumed(1); err != nil {
			return total, err
		}
	}
	return total + len(wcs), nil
}
