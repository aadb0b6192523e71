package lockoffload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/verbs"
)

// line executes lists on a queue pair. Lists of several goroutines may be under
// way at a time; each stays together. The first that fails ends the line.
type line struct {
	r      *verbs.Requester
	qp     *verbs.QP
	remote verbs.Region

	// mark is put where the last bytes of a READ's or an atomic's result belong.
	// A completion must not leave it there. Soft-RoCE's can: a WRITE that arrives
	// twice, which happens where packets get lost, is acknowledged up to the
	// last request that was executed, and the sender takes that for the response to
	// a READ or an atomic behind the WRITE. The specification has the sender take it for
	// an implied NAK and ask again.
	mark uint64

	mu      sync.Mutex
	broken  error
	onBreak func() // called once, before any call returns the error
}

// minWRs is room for the longest list.
const minWRs = 16

func newLine(qp *verbs.QP, cq *verbs.CQ, remote verbs.Region, onBreak func()) (*line, error) {
	if qp.SendCQ() != cq {
		return nil, fmt.Errorf("lockoffload: sends of queue pair %#x complete in another queue than that: %w", qp.Num(), ErrConfig)
	}
	if qp.MaxSendWR() < minWRs {
		return nil, fmt.Errorf("lockoffload: queue pair with %d send requests, %d are needed: %w", qp.MaxSendWR(), minWRs, ErrConfig)
	}
	r, err := verbs.NewRequester(qp, verbs.RequesterConfig{})
	if err != nil {
		return nil, err
	}
	return &line{r: r, qp: qp, remote: remote, mark: rand.Uint64(), onBreak: onBreak}, nil
}

// flight is a list under way. When it is over it may be used again, if only one
// goroutine awaits it.
type flight struct {
	call   verbs.Call
	line   *line
	list   []machine.Op
	mem    []byte
	until  int64 // when it is too late to post it, by the clock; 0: never
	posted bool
	then   *Commit // that ends with the flight, before await returns, if set
}

// requests are memory for the requests of a list, which the caller of post owns, and the device does
// not use.
type requests struct {
	wrs  []verbs.WR
	sges []verbs.SGE
}

// issue posts a list that uses the memory, as post does, but breaks the line also when the
// context ends before there is room in the queue. So the heartbeat of a session ends a
// connection on which nothing completes.
func (l *line) issue(ctx context.Context, ops []machine.Op, mr *verbs.MR) (*flight, error) {
	f := &flight{list: ops}
	err := l.post(ctx, f, mr, new(requests))
	if err != nil && !errors.Is(err, ErrBroken) {
		err = l.failAndFlush(err)
	}
	return f, err
}

// post posts the list of a flight, which uses the memory. The flight may be over when
// it returns. After an error nothing was posted: the context has ended before there was room
// in the queue, and the error is the context's, or the line is broken. So a caller that
// gives up knows what was executed; or it was too late. The memory is the device's until the flight
// is over.
func (l *line) post(ctx context.Context, f *flight, mr *verbs.MR, rs *requests) error {
	f.line, f.mem, f.call.Then = l, mr.Bytes(), f
	limit(&f.call, time.Duration(f.until))
	err := l.r.Go(ctx, &f.call, l.fill(rs, f, mr)...)
	switch {
	case err == nil:
		f.posted = true
		return nil
	case f.until != 0 && errors.Is(err, syscall.ETIME):
		return errLate
	case ctx.Err() != nil && errors.Is(err, ctx.Err()) && l.fault() == nil:
		return ctx.Err()
	case l.fault() == nil:
		return l.failAndFlush(err)
	}
	return l.fail(err)
}

// failAndFlush fails the line and moves the queue pair, which may still work, to ERROR. It
// records err first, so that flushed requests are not taken for the cause.
func (l *line) failAndFlush(err error) error {
	err = l.fail(err)
	_ = l.qp.ToError()
	return err
}

// wrOps are the operations of requests.
var wrOps = [...]verbs.WROp{machine.OpCmpSwap: verbs.WRCmpSwap, machine.OpFetchAdd: verbs.WRFetchAdd, machine.OpRead: verbs.WRRead, machine.OpWrite: verbs.WRWrite}

// fill fills in the requests of a flight, and its memory.
func (l *line) fill(rs *requests, f *flight, mr *verbs.MR) []verbs.WR {
	n := len(f.list)
	if n > len(rs.wrs) {
		rs.wrs, rs.sges = make([]verbs.WR, n), make([]verbs.SGE, n)
		for i := range n {
			rs.wrs[i].Local = rs.sges[i : i+1]
		}
	}
	for i := range n {
		o, w := &f.list[i], &rs.wrs[i]
		if o.Kind != machine.OpWrite {
			binary.NativeEndian.PutUint64(f.mem[o.At+o.N-8:], l.mark)
		}
		w.Op, w.Remote, w.Value = wrOps[o.Kind], l.remote.At(uint64(o.Off)), o.A
		if o.Kind == machine.OpCmpSwap {
			w.Compare, w.Value = o.A, o.B
		}
		rs.sges[i] = mr.SGE(o.At, o.N)
	}
	return rs.wrs[:n]
}

// await waits until a flight is over and returns its error, or the context's.
func (l *line) await(ctx context.Context, f *flight) error { return f.call.Wait(ctx) }

// took returns how long a flight that is over took, at most, if its call notes that.
func (f *flight) took() time.Duration {
	posted, over := times(&f.call)
	if over == 0 {
		over = time.Duration(now().UnixNano())
	}
	return over - posted
}

// Ended implements [verbs.CompletionHandler]. A list without its results breaks the line.
func (f *flight) Ended(err error) error {
	if err == nil && !f.delivered() {
		err = errUndelivered
	}
	if err != nil {
		err = f.line.fail(err)
	}
	if f.then != nil {
		f.then.executed(err, f.then.j.m.Base().Wrote)
	}
	return err
}

func (f *flight) delivered() bool {
	for i := range f.list {
		if o := &f.list[i]; o.Kind != machine.OpWrite && binary.NativeEndian.Uint64(f.mem[o.At+o.N-8:]) == f.line.mark {
			return false
		}
	}
	return true
}

// errLate says that the time had come until which a list might be posted.
var errLate = errors.New("the list is late")

var errUndelivered = errors.New("the device completed a request without its result")

// fail ends the line, unless it has ended, and returns the error that ended it. A queue
// pair is dead after one failed request: other requests under way fail by themselves.
func (l *line) fail(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = fmt.Errorf("%w: %w", ErrBroken, err)
		l.onBreak()
	}
	return l.broken
}

func (l *line) fault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// close ends all flights; afterwards the device touches none of their memory.
func (l *line) close() error {
	_ = l.fail(ErrClosed)
	return l.r.Close()
}
