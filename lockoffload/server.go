package lockoffload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/closing"
	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/verbs"
)

// ServerConfig describes the target's side.
type ServerConfig struct {
	PD     *verbs.PD
	Region *Region        // its memory is registered in PD
	GID    verbs.GIDEntry // local address; the zero value means what an empty query finds
	// Lease is how long a client may be silent and still rely on its locks; 0
	// means 1 s. Locks of a dead client are free again at most three leases
	// after its last heartbeat.
	Lease time.Duration
	// Grace is how long no client is admitted after the region's first server was made: clients
	// of a target before it, at which they held locks, may rely on them for a lease after
	// it has ended. 0 means one and a half leases; set it if the leases were longer then.
	// Negative means no grace: for programs in which no such lock can be held, or with
	// locks that protect nothing but the region.
	Grace   time.Duration
	Connect verbs.ConnectConfig // of the queue pairs to clients
	Logger  *slog.Logger        // nil: silent
}

// Server admits clients to a region, watches their leases and takes back what
// dead ones leave behind. Its methods are safe for concurrent use.
type Server struct {
	cfg  ServerConfig
	l    memory.Layout
	cq   *verbs.CQ // of the queue pairs to clients, which send nothing
	free func()    // lets another server have the region

	opens time.Time // no client is admitted before

	// Held while sessions are admitted or ended; taken before mu.
	ending sync.Mutex
	loop   *loopback // nil after a failure, until it is needed again
	shut   bool      // it is not made again
	fence  func(*verbs.QP) error

	closing sync.Once
	err     error // of Close

	mu       sync.Mutex
	sessions map[uint16]*Session
	epochs   []uint16
	closed   bool
	counts   ServerStats
	trouble  error

	stop context.CancelFunc
	gone chan struct{}
}

// ServerStats counts since the server was made.
type ServerStats struct {
	Admitted  uint64 // sessions
	Ended     uint64 // sessions that said goodbye or were closed here
	Expired   uint64 // sessions with a lease that ran out
	Recovered uint64 // locks and readers that were taken back
}

// NewServer starts to watch a region, which must have no other server. It first waits, for
// one and a half leases at most, until the leases of sessions that an earlier server closed
// are over, and gives back locks that an earlier server could not take back. Close it before
// the region's memory.
func NewServer(cfg ServerConfig) (_ *Server, err error) {
	if cfg.PD == nil || cfg.Region == nil || cfg.Lease != 0 && cfg.Lease < minLease {
		return nil, fmt.Errorf("lockoffload: make server: PD and region are needed, and a lease of %v at least: %w", minLease, ErrConfig)
	}
	cfg.Lease = cmp.Or(cfg.Lease, time.Second)
	cfg.Grace = cmp.Or(cfg.Grace, machine.LeaseLimit(cfg.Lease))
	cfg.Logger = cmp.Or(cfg.Logger, discard)
	free, err := claim(cfg.Region.mr.Bytes(), serverRole)
	if err != nil {
		return nil, opErrorf("make server", err)
	}
	var made closing.Stack
	defer func() {
		if err != nil {
			free()
			err = errors.Join(opErrorf("make server", err), made.Close())
		}
	}()
	time.Sleep(time.Until(cfg.Region.relied)) // no client of an earlier server relies on a lock any more
	cq, err := cfg.PD.Device().CreateCQ(verbs.CQConfig{PollOnly: true})
	if err != nil {
		return nil, err
	}
	made.Add(cq)
	loop, err := newLoopback(cfg.PD, cfg.GID, cfg.Region, cfg.Lease)
	if err != nil {
		return nil, err
	}
	made.Add(closing.Func(loop.close))
	// They begin somewhere else than those of an earlier server, so that its clients, if
	// they live, have the identity of no client that is admitted now.
	epochs := make([]uint16, cfg.Region.Clients+1)
	for i := range epochs {
		epochs[i] = uint16(rand.Uint32())
	}
	s := &Server{
		cfg: cfg, l: cfg.Region.l, cq: cq, free: free, loop: loop, fence: fenceQP, gone: make(chan struct{}),
		sessions: map[uint16]*Session{}, epochs: epochs, opens: cfg.Region.opensAfter(cfg.Grace),
	}
	// Before any client is admitted: a reader's bit identifies only an owner number, and a
	// bit that was left would become that of the number's next owner.
	m := machine.SessionsRecovery(&s.l, cfg.Region.mr.Bytes())
	if err := s.loop.drive(m); err != nil {
		return nil, err
	}
	s.counts.Recovered = uint64(m.Freed)
	if m.Freed > 0 {
		cfg.Logger.Warn("lockoffload: a server before had failed", "recovered", m.Freed)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.watch(ctx)
	return s, nil
}

// Stats returns the counts so far.
func (s *Server) Stats() ServerStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Err returns the error that now keeps the server from taking back locks of ended
// sessions: of their queue pairs, or of its own to the region. The server goes on trying,
// and Err returns nil when there is nothing left to be taken back. Until then the locks
// stay as they are. When the target's device was removed, which is noticed as sessions end,
// the error stays: it matches [ErrClosed], and the region needs another server, on another
// device.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble == nil && s.cfg.PD.Device().Removed() {
		return errRemoved
	}
	return s.trouble
}

// Close ends all sessions and frees what the server made; the region's memory
// stays. Locks of clients that may still rely on them stay locked: the region's next
// server waits for the ends of their leases and then gives the
// locks back. An error says that other locks stay locked, or that something could not be
// freed; it is no error that the target's device was removed. After an error a queue pair
// that was given to [Server.Admit] may still be written through: close it before the region
// is served again; the next server gives those locks back. Close may be called again: a
// second call waits for the first and returns the same error.
func (s *Server) Close() error {
	s.closing.Do(func() { s.err = s.close() })
	return s.err
}

func (s *Server) close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	<-s.gone
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	errs := []error{s.finish(all)}
	s.ending.Lock()
	defer s.ending.Unlock()
	for _, one := range all { // also those that could not be fenced
		if !one.ended {
			if one.until.IsZero() {
				one.until = time.Now().Add(machine.LeaseLimit(s.cfg.Lease))
			}
			if one.until.After(s.cfg.Region.relied) {
				s.cfg.Region.relied = one.until
			}
		}
		err := one.dispose()
		if errs = append(errs, err); err == nil && one.made && !one.fenced {
			one.fenced = true // a queue pair that is no more executes nothing
			close(one.done)
		}
	}
	s.shut = true
	if s.loop != nil {
		errs = append(errs, s.loop.close())
	}
	s.free()
	return errors.Join(append(errs, s.cq.Close())...)
}

// Admit makes a session for a client, with a new queue pair to connect, or with qp,
// which the session then moves to ERROR, and the caller must close.
// The client's lease begins with its first heartbeat, which must come within
// one minute. [ErrStarting] says that the region's grace is not over, see
// ServerConfig.Grace.
func (s *Server) Admit(qp *verbs.QP) (*Session, error) { return s.admit(qp, s.cfg.GID) }

// awaitOpen waits until clients are admitted.
func (s *Server) awaitOpen(ctx context.Context) error {
	left := time.NewTimer(time.Until(s.opens))
	defer left.Stop()
	select {
	case <-left.C:
		return nil
	case <-ctx.Done():
		return opErrorf("admit", errors.Join(ErrStarting, ctx.Err()))
	}
}

// admit is Admit with the GID for a queue pair that it makes.
func (s *Server) admit(qp *verbs.QP, gid verbs.GIDEntry) (*Session, error) {
	s.ending.Lock()
	defer s.ending.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, opErrorf("admit", ErrClosed)
	}
	if s.cfg.PD.Device().Removed() {
		return nil, opErrorf("admit", errRemoved)
	}
	if left := time.Until(s.opens); left > 0 {
		return nil, opErrorf("admit", fmt.Errorf("%w: it admits clients in %v", ErrStarting, left))
	}
	var owner uint16
	for i := range s.l.Clients {
		if o := uint16(i + 1); s.sessions[o] == nil {
			owner = o
			break
		}
	}
	if owner == 0 {
		return nil, opErrorf("admit", ErrFull)
	}
	one := &Session{srv: s, qp: qp, done: make(chan struct{}), lease: machine.NewLease(s.cfg.Lease, firstHeartbeat, time.Now())}
	if qp == nil {
		made, err := s.cfg.PD.CreateQP(verbs.QPConfig{SendCQ: s.cq, GID: gid, MaxSendWR: 1, MaxRecvWR: 1})
		if err != nil {
			return nil, err
		}
		one.qp, one.made = made, true
	}
	// The word may hold the goodbye of the place's last owner. A client that comes
	// and goes between two looks at it would leave it as it was.
	if err := s.cfg.Region.mr.Store64(s.l.BeatOff(owner), 0); err != nil {
		return nil, errors.Join(err, one.dispose())
	}
	s.epochs[owner]++
	one.info = SessionInfo{Owner: owner, Epoch: s.epochs[owner], Lease: s.cfg.Lease, Region: s.cfg.Region.Remote(), Layout: s.cfg.Region.Layout, Generation: s.cfg.Region.generation}
	s.sessions[owner] = one
	s.counts.Admitted++
	return one, nil
}

// Session is a client's place at the target.
type Session struct {
	srv  *Server
	qp   *verbs.QP
	made bool // the queue pair is the session's
	info SessionInfo
	done chan struct{}

	// Under the server's ending.
	fenced, evicted, ended bool
	until                  time.Time // the end of its lease, known when it is fenced

	lease   machine.Lease // the watch's, and then that of ending
	closing bool          // under the server's mu
	expired bool          // written under mu, by the watch alone
}

// Info returns the session info to pass to the client.
func (s *Session) Info() SessionInfo { return s.info }

// Endpoint returns the endpoint of the session's queue pair, with the encoded session info as
// its data and the region among its regions.
func (s *Session) Endpoint() (verbs.Endpoint, error) {
	e, err := s.qp.Endpoint()
	if err != nil {
		return e, err
	}
	e.Regions = append(e.Regions, s.info.Region)
	e.Data, err = s.info.AppendBinary(nil)
	return e, err
}

// Connect connects the session's queue pair to the client's.
func (s *Session) Connect(remote verbs.Endpoint) error {
	return s.qp.Connect(remote, s.srv.cfg.Connect)
}

// QP returns the session's queue pair.
func (s *Session) QP() *verbs.QP { return s.qp }

// Done returns a channel that is closed when the session has ended and no request of it
// can execute any more. Receives that were posted to its queue pair are gone by then.
func (s *Session) Done() <-chan struct{} { return s.done }

// Close ends the session: when it returns, no request of its client is executed any more.
// The client notices when its next request fails, and relies on its locks until then.
// So the server gives its locks and its place to others when its lease is over, or at once
// if it never had one. After an error the server goes on trying, see [Server.Err]. Close
// may be called again.
func (s *Session) Close() error { return s.end(false) }

// Evict is Close that gives locks and place to others at once: for programs that know that
// the client relies on its locks no more, because its [Lock.Lost] are closed, or because
// the locks protect nothing but the region.
func (s *Session) Evict() error { return s.end(true) }

func (s *Session) end(evict bool) error {
	s.srv.mu.Lock()
	s.closing = true
	s.srv.mu.Unlock()
	if evict {
		s.srv.ending.Lock()
		s.evicted = true
		s.srv.ending.Unlock()
	}
	return s.srv.finish([]*Session{s})
}

func (s *Session) dispose() error {
	if !s.made {
		return nil
	}
	return s.qp.Close()
}
