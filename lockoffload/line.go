package lockoffload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// line executes lists on a queue pair. Lists of several goroutines may be under
// way at a time; each stays together. Whoever waits polls for all.
type line struct {
	qp     *verbs.QP
	cq     *verbs.CQ
	remote verbs.Region

	post  sync.Mutex // filling in and posting the batch
	batch *verbs.Batch

	// mark is put where the last bytes of a READ's or an atomic's result belong.
	// A completion must not leave it there. Soft-RoCE's can: a WRITE that comes
	// twice, which happens where packets get lost, is acknowledged up to the
	// last request that was executed, and the sender takes that for the reply to
	// a READ or an atomic behind the WRITE. The specification has the sender take it for
	// an implied NAK and ask again.
	mark uint64

	poll chan struct{} // holds a token while somebody polls
	wcs  []verbs.WC

	mu      sync.Mutex
	flights []*flight // in the order of posting
	posted  int       // requests of all of them
	broken  error
	onBreak func() // called once
}

// leastWRs is room for the longest list with one record. Each further record
// takes one more.
const leastWRs = 16

// flight is a list under way.
type flight struct {
	ops  int
	list []op
	mem  []byte
	done chan struct{}
	err  error // once done is closed
	then func(error)
}

func newLine(qp *verbs.QP, cq *verbs.CQ, remote verbs.Region, onBreak func()) (*line, error) {
	if qp.MaxSendWR() < leastWRs {
		return nil, fmt.Errorf("lockoffload: queue pair with %d send requests, %d are needed: %w", qp.MaxSendWR(), leastWRs, ErrConfig)
	}
	b, err := qp.NewBatch(qp.MaxSendWR())
	if err != nil {
		return nil, err
	}
	return &line{qp: qp, cq: cq, remote: remote, batch: b, mark: rand.Uint64(), poll: make(chan struct{}, 1), wcs: make([]verbs.WC, 16), onBreak: onBreak}, nil
}

// issue posts a list that uses the memory. then, if any, is called when it has
// ended, by whoever polls, and must not wait; it is not called when issue
// answers an error. An error says that nothing was posted and nothing will be:
// the line is broken. So whoever gives up knows what was executed; the wait for
// room in the queue is as long as the device takes. The memory is the device's
// until the flight is done.
func (l *line) issue(ops []op, mr *verbs.MR, then func(error)) (*flight, error) {
	for {
		if err := l.room(len(ops)); err != nil {
			return nil, err
		}
		l.post.Lock()
		f, err := l.tryIssue(ops, mr, then)
		l.post.Unlock()
		if f != nil || err != nil {
			return f, err
		}
	}
}

// tryIssue answers nothing when there is no room any more.
func (l *line) tryIssue(ops []op, mr *verbs.MR, then func(error)) (*flight, error) {
	f := &flight{ops: len(ops), list: ops, mem: mr.Bytes(), done: make(chan struct{}), then: then}
	l.mu.Lock()
	if l.broken != nil || l.posted+f.ops > l.qp.MaxSendWR() {
		defer l.mu.Unlock()
		return nil, l.broken
	}
	l.posted += f.ops
	l.flights = append(l.flights, f)
	l.mu.Unlock()
	for i := range ops {
		o, flags := &ops[i], verbs.SendFlags(0)
		if i == len(ops)-1 {
			flags = verbs.Signaled
		}
		if o.kind != opWrite {
			binary.NativeEndian.PutUint64(f.mem[o.at+o.n-8:], l.mark)
		}
		at, local := l.remote.At(uint64(o.off)), mr.SGE(o.at, o.n)
		switch o.kind {
		case opCmpSwap:
			l.batch.CmpSwap(0, flags, at, o.a, o.b, local)
		case opFetchAdd:
			l.batch.FetchAdd(0, flags, at, o.a, local)
		case opRead:
			l.batch.Read(0, flags, at, local)
		case opWrite:
			l.batch.Write(0, flags, at, local)
		}
	}
	n, err := l.batch.Post()
	if err == nil {
		return f, nil
	}
	withdrawn := n == 0 && l.withdraw(f)
	l.fail(err)
	if withdrawn {
		return nil, l.fault()
	}
	return f, nil // part of it may be executed; or all failed meanwhile
}

// withdraw takes back the list that was added last.
func (l *line) withdraw(f *flight) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.flights)
	if n == 0 || l.flights[n-1] != f {
		return false
	}
	l.flights = l.flights[:n-1]
	l.posted -= f.ops
	return true
}

// room waits until n more requests fit.
func (l *line) room(n int) error {
	for {
		l.mu.Lock()
		if l.broken != nil || l.posted+n <= l.qp.MaxSendWR() {
			defer l.mu.Unlock()
			return l.broken
		}
		first := l.flights[0]
		l.mu.Unlock()
		if err := l.await(context.Background(), first); err != nil {
			return err
		}
	}
}

// await waits until a list has ended and answers its error, or the context's.
func (l *line) await(ctx context.Context, f *flight) error {
	for {
		select {
		case <-f.done:
			return f.err
		default:
		}
		select {
		case l.poll <- struct{}{}:
			n, err := 0, error(nil)
			select {
			case <-f.done: // while the token was another's
			default:
				n, err = l.cq.Wait(ctx, l.wcs)
			}
			for i := range n {
				l.ended(l.wcs[i].Err())
			}
			<-l.poll
			if err != nil && ctx.Err() == nil {
				l.fail(err)
			} else if err != nil {
				return ctx.Err()
			}
		case <-f.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ended takes one completion: of the oldest list, since a queue pair completes
// in order, unless it tells of an error.
func (l *line) ended(err error) {
	if err != nil {
		l.fail(err)
		return
	}
	l.mu.Lock()
	if len(l.flights) == 0 { // all of them were ended by an error
		l.mu.Unlock()
		return
	}
	f := l.flights[0]
	if !f.delivered(l.mark) {
		l.mu.Unlock()
		l.fail(errUndelivered)
		return
	}
	l.flights = l.flights[1:]
	l.posted -= f.ops
	l.mu.Unlock()
	f.end(nil)
}

var errUndelivered = errors.New("the device completed a request without its result")

func (f *flight) delivered(mark uint64) bool {
	for i := range f.list {
		if o := &f.list[i]; o.kind != opWrite && binary.NativeEndian.Uint64(f.mem[o.at+o.n-8:]) == mark {
			return false
		}
	}
	return true
}

func (f *flight) end(err error) {
	f.err = err
	if f.then != nil {
		f.then(err)
	}
	close(f.done)
}

// fail ends all lists: a queue pair is dead after one failed request.
func (l *line) fail(err error) {
	l.mu.Lock()
	if l.broken != nil {
		l.mu.Unlock()
		return
	}
	l.broken = fmt.Errorf("%w: %w", ErrBroken, err)
	left := l.flights
	l.flights = nil
	l.mu.Unlock()
	l.onBreak()
	for _, f := range left {
		f.end(l.broken)
	}
}

func (l *line) fault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// close ends what is under way; afterwards the device touches none of the
// memory.
func (l *line) close(ctx context.Context) error {
	l.mu.Lock()
	idle := l.broken == nil && len(l.flights) == 0
	l.mu.Unlock()
	defer l.fail(ErrClosed)
	if idle {
		return nil
	}
	_ = l.qp.ToError() // ends a wait; Drain says what is wrong with it
	l.poll <- struct{}{}
	defer func() { <-l.poll }()
	if err := l.qp.Drain(ctx, nil); !errors.Is(err, verbs.ErrClosed) {
		return err
	}
	return nil // it is gone, and nothing is under way in it
}
