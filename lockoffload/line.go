package lockoffload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/goverbs/goverbs/internal/turn"
	"github.com/goverbs/goverbs/verbs"
)

// line executes lists on a queue pair. Lists of several goroutines may be under
// way at a time; each stays together. Whoever waits polls for all.
type line struct {
	qp     *verbs.QP
	cq     *verbs.CQ
	remote verbs.Region

	posting sync.Mutex // filling in and posting the batch
	batch   *verbs.Batch

	// mark is put where the last bytes of a READ's or an atomic's result belong.
	// A completion must not leave it there. Soft-RoCE's can: a WRITE that comes
	// twice, which happens where packets get lost, is acknowledged up to the
	// last request that was executed, and the sender takes that for the reply to
	// a READ or an atomic behind the WRITE. The specification has the sender take it for
	// an implied NAK and ask again.
	mark uint64

	poll turn.Turn // of who polls
	wcs  []verbs.WC

	mu          sync.Mutex
	first, last *flight // under way, in the order of posting
	posted      int     // requests of all of them
	broken      error
	onBreak     func() // called once
}

// leastWRs is room for the longest list with one record. Each further record
// takes one more.
const leastWRs = 16

func newLine(qp *verbs.QP, cq *verbs.CQ, remote verbs.Region, onBreak func()) (*line, error) {
	if qp.MaxSendWR() < leastWRs {
		return nil, fmt.Errorf("lockoffload: queue pair with %d send requests, %d are needed: %w", qp.MaxSendWR(), leastWRs, ErrConfig)
	}
	b, err := qp.NewBatch(qp.MaxSendWR())
	if err != nil {
		return nil, err
	}
	return &line{qp: qp, cq: cq, remote: remote, batch: b, mark: rand.Uint64(), poll: turn.New(), wcs: make([]verbs.WC, 16), onBreak: onBreak}, nil
}

// issue posts a list that uses the memory, see post.
func (l *line) issue(ops []op, mr *verbs.MR) (*flight, error) {
	f := &flight{list: ops}
	if err := l.post(f, mr); err != nil {
		return nil, err
	}
	return f, nil
}

// post posts the list of a flight, which uses the memory, and looks once for
// completions, in the same crossing into C where nobody else does: with luck
// the flight is over already. An error says that nothing was posted and nothing
// will be: the line is broken. So whoever gives up knows what was executed; the
// wait for room in the queue is as long as the device takes. The memory is the
// device's until the flight is over.
func (l *line) post(f *flight, mr *verbs.MR) error {
	f.mem, f.next, f.err = mr.Bytes(), nil, nil
	f.over.reset()
	for {
		full, err := l.tryPost(f, mr)
		if !full {
			return err
		}
		l.room(len(f.list))
	}
}

func (l *line) tryPost(f *flight, mr *verbs.MR) (full bool, err error) {
	l.posting.Lock()
	defer l.posting.Unlock()
	if full, err := l.add(f); full || err != nil {
		return full, err
	}
	l.fill(f, mr)
	n, err := 0, error(nil)
	if l.poll.Try() {
		var got int
		n, got, err = l.batch.PostPoll(l.cq, l.wcs, 0)
		l.take(got)
		l.poll.Release()
	} else {
		n, err = l.batch.Post()
	}
	if err == nil {
		return false, nil
	}
	withdrawn := n == 0 && l.withdraw(f)
	l.fail(err)
	if withdrawn {
		return false, l.fault()
	}
	return false, nil // part of it may be executed; or all failed meanwhile
}

// fill puts the list into the batch.
func (l *line) fill(f *flight, mr *verbs.MR) {
	for i := range f.list {
		o, flags := &f.list[i], verbs.SendFlags(0)
		if i == len(f.list)-1 {
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
}

// add puts a flight behind the others, unless there is no room for it.
func (l *line) add(f *flight) (full bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil || l.posted+len(f.list) > l.qp.MaxSendWR() {
		return l.broken == nil, l.broken
	}
	l.posted += len(f.list)
	if l.first == nil {
		l.first = f
	} else {
		l.last.next = f
	}
	l.last = f
	return false, nil
}

// withdraw takes back the flight that was added last.
func (l *line) withdraw(f *flight) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil || l.last != f {
		return false // all failed
	}
	var before *flight
	for g := l.first; g != f; g = g.next {
		before = g
	}
	if before == nil {
		l.first = nil
	} else {
		before.next = nil
	}
	l.last = before
	l.posted -= len(f.list)
	return true
}

// room waits until n more requests fit, or the line is broken.
func (l *line) room(n int) {
	full := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.broken == nil && l.posted+n > l.qp.MaxSendWR()
	}
	for full() {
		l.poll.Take(nil, nil) // who polls lets go after each completion
		if full() {
			_ = l.look(context.Background())
		}
		l.poll.Release()
	}
}

// look waits for completions, in turn. Its error is the context's.
func (l *line) look(ctx context.Context) error {
	n, err := l.cq.Wait(ctx, l.wcs)
	l.take(n)
	if err != nil && ctx.Err() == nil {
		l.fail(err)
		return nil
	}
	return err
}

// await waits until a flight is over and answers its error, or the context's.
func (l *line) await(ctx context.Context, f *flight) error {
	for !f.over.happened() {
		if !l.poll.Try() && !l.poll.Take(f.over.done(), ctx.Done()) {
			if f.over.happened() {
				break
			}
			return ctx.Err()
		}
		var err error
		if !f.over.happened() { // while the turn was another's
			err = l.look(ctx)
		}
		l.poll.Release()
		if err != nil {
			return ctx.Err()
		}
	}
	return f.err
}

// take takes the first n completions of wcs, in turn. Each is of the
// oldest flight, since a queue pair completes in order, unless it tells of an
// error.
func (l *line) take(n int) {
	for i := range n {
		l.ended(l.wcs[i].Err())
	}
}

func (l *line) ended(err error) {
	if err != nil {
		l.fail(err)
		return
	}
	l.mu.Lock()
	f := l.first
	if f == nil { // all of them were ended by an error
		l.mu.Unlock()
		return
	}
	if !f.delivered(l.mark) {
		l.mu.Unlock()
		l.fail(errUndelivered)
		return
	}
	l.first = f.next
	l.posted -= len(f.list)
	l.mu.Unlock()
	f.end(nil)
}

var errUndelivered = errors.New("the device completed a request without its result")

// fail ends all lists: a queue pair is dead after one failed request.
func (l *line) fail(err error) {
	l.mu.Lock()
	if l.broken != nil {
		l.mu.Unlock()
		return
	}
	l.broken = fmt.Errorf("%w: %w", ErrBroken, err)
	f := l.first
	l.first, l.last = nil, nil
	l.mu.Unlock()
	l.onBreak()
	for f != nil {
		next := f.next // afterwards it may be on its way again
		f.end(l.broken)
		f = next
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
	idle := l.broken == nil && l.first == nil
	l.mu.Unlock()
	defer l.fail(ErrClosed)
	if idle {
		return nil
	}
	_ = l.qp.ToError() // ends a wait; Drain says what is wrong with it
	l.poll.Take(nil, nil)
	defer l.poll.Release()
	if err := l.qp.Drain(ctx, nil); !errors.Is(err, verbs.ErrClosed) {
		return err
	}
	return nil // it is gone, and nothing is under way in it
}
