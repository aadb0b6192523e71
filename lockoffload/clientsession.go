package lockoffload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/boottime"
	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// now is the clock for clients' leases and for the time of READs. It counts while the
// host is suspended, as the target's does. (The target's clock need not: one that stands
// still makes the target wait longer.)
var now = boottime.Now

// times returns when a call's list was posted, and when it was over or 0, by that clock, and limit
// has lists posted before a time of it, or not at all.
var times, limit = driver.Times, driver.Limit

// session is a client's side of one admission: a connection, an identity and a
// lease.
type session struct {
	line  *line
	tags  memory.Tagger
	seq   atomic.Uint32 // of tags
	lease time.Duration

	lost  chan struct{} // closed when locks can no longer be relied on
	flush sync.Once
	until atomic.Int64 // the time before which WRITEs may be posted, by the clock; 0: any time

	mu      sync.Mutex
	kept    machine.KeptLease
	over    bool
	leaving bool // over because it is closed: the target is yet to be told

	stop context.CancelFunc
	gone chan struct{} // the watchdog has ended
	beat *verbs.MR     // the heartbeat, and the list that writes it
	word []machine.Op
}

func newSession(pd *verbs.PD, qp *verbs.QP, cq *verbs.CQ, in SessionInfo) (*session, error) {
	s := &session{lease: in.Lease, lost: make(chan struct{}), gone: make(chan struct{})}
	s.tags.Owner, s.tags.Epoch = in.Owner, in.Epoch
	s.tags.Count = func() uint32 { return s.seq.Add(1) }
	var err error
	if s.line, err = newLine(qp, cq, in.Region, s.lose); err != nil {
		return nil, err
	}
	if s.beat, err = pd.AllocMR(8, verbs.MRConfig{}); err != nil {
		return nil, errors.Join(err, s.line.close())
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	if s.lease <= 0 {
		close(s.gone)
		return s, nil
	}
	// The first heartbeat is ahead of everything else that is posted. Were it
	// behind a lock command, a client that died between the two would hold the
	// lock until the target gave up waiting for a heartbeat.
	s.kept = machine.NewKeptLease(s.lease, now())
	s.until.Store(s.kept.Until().UnixNano())
	l := memory.Layout(in.Layout)
	s.word = []machine.Op{{Kind: machine.OpWrite, Off: l.BeatOff(in.Owner), N: 8}}
	first, err := s.heartbeat(ctx, uint64(in.Epoch)<<32+1)
	if err != nil {
		close(s.gone)
		return nil, errors.Join(err, s.close())
	}
	go s.watchdog(ctx, first)
	return s, nil
}

// watchdog counts the heartbeat up three times in a lease. The lease runs from
// the posting of the last one that was acknowledged: the target counts from
// when it sees it, which is later.
func (s *session) watchdog(ctx context.Context, f *flight) {
	defer close(s.gone)
	tick := time.NewTicker(s.lease / 3)
	defer tick.Stop()
	for count := uint64(s.tags.Epoch)<<32 + 2; ; count++ {
		// Not under ctx: its memory is used again.
		if err := s.acknowledged(context.Background(), f); err != nil {
			s.expire()
			return
		}
		s.extend()
		select {
		case <-tick.C:
		case <-ctx.Done():
			bye, cancel := context.WithTimeout(context.Background(), s.lease/3)
			defer cancel()
			if f, err := s.heartbeat(bye, machine.Goodbye); err == nil {
				_ = s.acknowledged(bye, f) // else the target waits for the lease
			}
			return
		}
		s.mu.Lock()
		s.kept.Posted(now())
		s.mu.Unlock()
		var err error
		if f, err = s.heartbeat(context.Background(), count); err != nil {
			s.expire()
			return
		}
	}
}

// extend has the lease run from the last heartbeat, which has been acknowledged.
func (s *session) extend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept.Acknowledged()
	if !s.over {
		s.until.Store(s.kept.Until().UnixNano())
	}
}

// heartbeat posts a heartbeat. The previous one must have been acknowledged. It waits for
// room in the queue until the lease is over at most: the queue may be full of requests that
// never complete.
func (s *session) heartbeat(ctx context.Context, count uint64) (*flight, error) {
	ctx, cancel := s.leased(ctx)
	defer cancel()
	binary.LittleEndian.PutUint64(s.beat.Bytes(), count)
	return s.line.issue(ctx, s.word, s.beat)
}

// acknowledged waits until a heartbeat is acknowledged, to the end of the lease at most.
func (s *session) acknowledged(ctx context.Context, f *flight) error {
	ctx, cancel := s.leased(ctx)
	defer cancel()
	return s.line.await(ctx, f)
}

// leased returns a context that ends with the lease as it stands now.
func (s *session) leased(ctx context.Context) (context.Context, context.CancelFunc) {
	s.mu.Lock()
	until := s.kept.Until()
	s.mu.Unlock()
	return context.WithTimeout(ctx, until.Sub(now()))
}

// expire ends the session: its locks are lost, nothing is posted any more.
func (s *session) expire() {
	s.lose()
	// Requests under way end now, not when the device gives up. A queue pair that is
	// in ERROR already, or closed, may refuse.
	s.flush.Do(func() { _ = s.line.qp.ToError() })
}

// lose ends the session like expire, but leaves the queue pair, which has failed or is
// about to be moved to ERROR.
func (s *session) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.over = true
		s.until.Store(longOver)
		close(s.lost)
	}
}

// longOver is a time before all others of the clock.
const longOver = 1

// leave is lose for a session that is being closed. Call it before the goodbye is sent,
// after which the target may give the session's locks to others at once.
func (s *session) leave() {
	s.mu.Lock()
	s.leaving = true
	s.mu.Unlock()
	s.lose()
}

// allowed returns an error unless a WRITE may be posted under the lease.
func (s *session) allowed() error {
	if until := s.until.Load(); until == 0 || now().UnixNano() < until {
		return nil
	}
	return s.late()
}

// late returns the error of a WRITE that may not be posted any more, after which the session is over.
func (s *session) late() error {
	s.mu.Lock()
	leaving := s.leaving
	s.mu.Unlock()
	if !leaving {
		s.expire()
	}
	if err := s.line.fault(); err != nil {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	if leaving {
		return fmt.Errorf("%w: %w", ErrLost, ErrClosed)
	}
	return fmt.Errorf("%w: the lease ran out", ErrLost)
}

// closeTimeout is how long a close waits for what is under way.
const closeTimeout = time.Second

func (s *session) close() error {
	s.leave()
	s.stop()
	select {
	case <-s.gone:
	case <-time.After(closeTimeout): // nothing comes through: it waits for the lease
		s.expire()
		<-s.gone
	}
	return errors.Join(s.line.close(), s.beat.Close())
}
