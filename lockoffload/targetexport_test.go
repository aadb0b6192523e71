package lockoffload

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/goverbs/goverbs/internal/boottime"
	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// CountFromZero has versions and tokens of a region that no client knows yet begin at zero.
func (r *Region) CountFromZero() { r.l.Format(r.mr.Bytes(), 0) }

// SetClock has clients' clocks show something else, until they are set right again.
func SetClock(shows func(time.Time) time.Time) (setRight func()) {
	now = func() time.Time { return shows(boottime.Now()) }
	times = func(c *verbs.Call) (posted, over time.Duration) {
		posted, over = driver.Times(c)
		posted = time.Duration(shows(time.Unix(0, int64(posted))).UnixNano()) // read first, shown first
		if over != 0 {
			over = time.Duration(shows(time.Unix(0, int64(over))).UnixNano())
		}
		return posted, over
	}
	limit = func(c *verbs.Call, until time.Duration) {
		if until != 0 {
			until -= now().Sub(boottime.Now())
		}
		driver.Limit(c, until)
	}
	return func() { now, times, limit = boottime.Now, driver.Times, driver.Limit }
}

// BeforePosts has f called before each list is posted, when all that is looked at before has been.
func BeforePosts(f func()) (setRight func()) {
	right := limit
	limit = func(c *verbs.Call, until time.Duration) {
		f()
		right(c, until)
	}
	return func() { limit = right }
}

// BreakLoopback ends the server's own queue pair, as a device does that has an error.
func (s *Server) BreakLoopback() error {
	s.ending.Lock()
	defer s.ending.Unlock()
	return s.loop.qp.ToError()
}

// LoseWay ends the server's own queue pair, and has it make no other one until it is given
// back.
func (s *Server) LoseWay() (giveBack func(), err error) {
	s.ending.Lock()
	defer s.ending.Unlock()
	right := s.cfg.GID
	s.cfg.GID.Port = 99
	return func() {
		s.ending.Lock()
		defer s.ending.Unlock()
		s.cfg.GID = right
	}, s.loop.qp.ToError()
}

// FenceBy has the server fence queue pairs by f, which gets what it did before.
func (s *Server) FenceBy(f func(qp *verbs.QP, fence func(*verbs.QP) error) error) {
	s.ending.Lock()
	defer s.ending.Unlock()
	before := s.fence
	s.fence = func(qp *verbs.QP) error { return f(qp, before) }
}

// Beat has a heartbeat of a client come in.
func (r *Region) Beat(s *Session, count uint64) error {
	return r.mr.Store64(r.l.BeatOff(s.info.Owner), uint64(s.info.Epoch)<<32+count)
}

// LeaveStray has a slot locked, and read, by sessions that the server does not know.
func (r *Region) LeaveStray(slot int) error {
	if err := r.mr.Store64(r.l.ReadersOff(slot), 1<<3); err != nil {
		return err
	}
	return r.mr.Store64(r.l.LockOff(slot), memory.MakeTag(2, 77, 1))
}

// LeaveLock has a slot locked by a session of a server before.
func (r *Region) LeaveLock(slot int) error {
	return r.mr.Store64(r.l.LockOff(slot), memory.MakeTag(1, 1, 1))
}

// LeaveReader has a slot read by a session of a server before.
func (r *Region) LeaveReader(slot int, owner uint16) error {
	off, bit := r.l.ReaderBit(slot, owner)
	old, err := r.mr.Load64(off)
	return errors.Join(err, r.mr.Store64(off, old|bit))
}

// LeavePieces has a slot locked by a session of a server before, which died in the middle of
// its WRITE.
func (r *Region) LeavePieces(slot int) error {
	return errors.Join(r.LeaveLock(slot), r.mr.Store64(r.l.CopyOff(slot, 1), 1))
}

// Left returns the lock word and the first word of readers of a slot.
func (r *Region) Left(slot int) (lock, readers uint64) {
	lock, _ = r.mr.Load64(r.l.LockOff(slot))
	readers, _ = r.mr.Load64(r.l.ReadersOff(slot))
	return lock, readers
}

// Versions are those of a slot's copies.
func (r *Region) Versions(slot int) (v [2]uint64) {
	for i := range v {
		v[i], _ = r.mr.Load64(r.l.CopyOff(slot, i))
	}
	return v
}

// BreakAgent ends the agent's own queue pair.
func (l *Listener) BreakAgent() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.agent.loop.ToError()
}

// StopAgent has the agent fail as if its device had.
func (l *Listener) StopAgent() {
	l.mu.Lock()
	agent := l.agent
	l.mu.Unlock()
	agent.mu.Lock()
	defer agent.mu.Unlock()
	agent.fail(errors.New("stopped by a test"))
}

// LoseAgent has the agent fail, and none take its place until what it lacks is given back.
func (l *Listener) LoseAgent() (giveBack func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	right := l.cfg.GID
	l.cfg.GID.Port = 99
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.cfg.GID = right
	}, l.agent.loop.ToError()
}

// DetachBefore ends a connection of each of the agent's clients that it had before the one
// that it has.
func (l *Listener) DetachBefore() error {
	l.mu.Lock()
	clients := slices.Collect(maps.Keys(l.links))
	l.mu.Unlock()
	for _, client := range clients {
		qp, err := l.pd.CreateQP(l.agent.QPConfig())
		if err != nil {
			return err
		}
		l.detach(client, &agentConn{agent: l.agent, qp: qp})
	}
	return nil
}

// AgentClients is how many clients the agent has.
func (l *Listener) AgentClients() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.agent.mu.Lock()
	defer l.agent.mu.Unlock()
	return len(l.agent.core.ByID)
}

// HalfDial shows a target the key, and says nothing more.
func HalfDial(address string, key []byte, pd *verbs.PD) (net.Conn, error) {
	d := &dialer{pd: pd, address: address, cfg: DialConfig{Key: key}}
	j, _, err := d.meet(context.Background(), wire.Session, 0)
	if err != nil {
		return nil, err
	}
	return j.conn, errors.Join(j.qp.Close(), j.cq.Close())
}

// Left is [Region.Left] of the listener's region.
func (l *Listener) Left(slot int) (lock, readers uint64) { return l.region.Left(slot) }

// Queued is how many clients wait for a slot's lock in turn.
func (l *Listener) Queued(slot int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.agent.Queued(slot)
}

// Connections is how many queue pairs the caller has had.
func (c *Caller) Connections() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link.conn
}

// Admit asks the listener's server for a place.
func (l *Listener) Admit() (*Session, error) { return l.srv.Admit(nil) }
