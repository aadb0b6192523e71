package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cache/internal/own"
	"github.com/goverbs/goverbs/cache/internal/place"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/internal/loglimit"
)

// ErrTaken means that another running server has the id of this one.
var ErrTaken = errors.New("another server has this id")

// errGone means that the cluster has ended this life of the server.
var errGone = errors.New("this life of the server is no member any more")

// Member is a server in a cluster. It is safe for several goroutines.
type Member struct {
	cfg    Config
	server *server.Server
	store  *store
	peers  *peers
	begun  time.Time
	hint   chan struct{} // something has changed in etcd
	stop   context.CancelFunc
	work   sync.WaitGroup
	done   chan struct{} // closed when the member has ended
	closed func() error  // closes the store, once

	mu      sync.Mutex // of what follows
	self    place.Server
	own     *own.Server // nil before the first view
	view    *view       // the last one
	changed chan struct{}
	beats   map[place.Life]int64 // of the last view
	prior   map[place.Life]int64 // of the one before
	former  int                  // beats of a former life that were seen in this one
	copies  map[int]*shardCopy   // of shards that this member is about to own
	opening map[int]bool         // that are being imported
	giving  *giving              // the shard that this member hands over; nil: none
	moves   uint64
	left    bool // Drain has handed over everything
	err     error
}

// Join makes a server a member of a cluster. Until etcd replies the member tries again and serves no
// keys. The server must have no records and no snapshot, and is served and closed by the caller. The member must be
// closed first.
func Join(s *server.Server, cfg Config) (*Member, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	cfg.defaults()
	cfg.Logger = loglimit.New(cfg.Logger, 10*time.Second)
	if err := s.JoinCluster(); err != nil {
		return nil, err
	}
	etcd, err := openStore(&cfg)
	if err != nil {
		return nil, err
	}
	m := &Member{cfg: cfg, server: s, store: etcd, peers: newPeers(&cfg), begun: time.Now(), hint: make(chan struct{}, 1), done: make(chan struct{}),
		changed: make(chan struct{}), copies: make(map[int]*shardCopy), opening: make(map[int]bool)}
	m.closed = sync.OnceValue(etcd.close)
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	m.work.Go(func() { m.store.watch(ctx, m.hurry) })
	m.work.Go(func() { m.pullAll(ctx) })
	go func() {
		defer close(m.done)
		m.run(ctx)
		stop()
		m.work.Wait()
		m.peers.keep(nil)
	}()
	return m, nil
}

// Done returns a channel that is closed when the member has ended: after Close, or with an error.
func (m *Member) Done() <-chan struct{} { return m.done }

// Err returns the error with which the member has ended by itself, or nil. It matches [ErrTaken] if another running
// server has the id.
func (m *Member) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Close ends the membership without a word to the others, as a crash does: see [Member.Drain]. Closing twice is not an
// error.
func (m *Member) Close() error {
	m.stop()
	<-m.done
	return m.closed()
}

// Status is the state of a member.
type Status struct {
	Epoch   uint32 // of the table of shards; 0: there is none yet
	Members int
	Shards  int    // that this server owns
	Joined  bool   // this server is a member
	Moves   uint64 // of shards, that have ended with this server as their owner
}

// Status returns the state of the member.
func (m *Member) Status() (st Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st.Moves = m.moves
	if m.own == nil || m.own.Placement() == nil {
		return st
	}
	p, number := m.own.Placement(), m.own.Number()
	st.Epoch, st.Joined = p.Epoch, number != 0
	for range p.Members() {
		st.Members++
	}
	st.Shards = p.Owned(number)
	return st
}

func (m *Member) now() time.Duration { return time.Since(m.begun) }

// hurry has the next beat come at once.
func (m *Member) hurry() {
	select {
	case m.hint <- struct{}{}:
	default:
	}
}

// run beats until ctx ends or the life of the server is over.
func (m *Member) run(ctx context.Context) {
	every := own.Config{TTL: m.cfg.TTL}.Beat()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := m.beat(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errGone) || errors.Is(err, ErrTaken):
			m.gone(err)
			return
		case err != nil:
			m.cfg.Logger.Warn("cluster: nothing moves", "error", err)
		}
		select {
		case <-tick.C:
		case <-m.hint:
		case <-ctx.Done():
			return
		}
	}
}

// gone notes that this life has ended, which is no error after Drain.
func (m *Member) gone(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.left {
		m.cfg.Logger.Error("cluster: the server is no member any more", "error", err)
		m.err = err
	}
}

// beat writes this life's key and reads everything, and then does what that asks for.
func (m *Member) beat(ctx context.Context) error {
	if m.own == nil {
		if err := m.begin(ctx); err != nil {
			return err
		}
	}
	sent := m.now()
	v, err := m.store.beat(ctx, m.self)
	if err != nil {
		return err
	}
	if v.Placement == nil {
		return m.create(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.observe(v, sent); err != nil {
		return err
	}
	m.open(ctx)
	return errors.Join(m.change(ctx), m.give(ctx))
}

// begin chooses the boot number of this life, which is above that of the former one also if the clock was set back.
func (m *Member) begin(ctx context.Context) error {
	v, err := m.store.read(ctx)
	if err != nil {
		return err
	}
	boot := uint64(m.begun.UnixNano())
	for l := range v.Beats {
		if l.ID == m.cfg.ID {
			boot = max(boot, l.Boot+1)
		}
	}
	if v.Placement != nil {
		for _, s := range v.Placement.Servers {
			if s.ID == m.cfg.ID {
				boot = max(boot, s.Boot+1)
			}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.self = m.cfg.server(boot)
	m.own = own.NewServer(own.Config{TTL: m.cfg.TTL, Drift: own.Drift}, m.self.Life, m.now())
	return nil
}

// create writes the first placement, in which this server owns all shards, unless another member has written one.
func (m *Member) create(ctx context.Context) error {
	if m.own.Placement() != nil {
		return errors.New("cluster: etcd has lost the placement")
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	_, err := m.store.replace(ctx, 0, place.New(id, place.Shards, m.self), nil)
	m.hurry()
	return err
}

// observe takes a view. mu must be held.
func (m *Member) observe(v *view, sent time.Duration) error {
	before := m.own.Placement()
	if before != nil && (before.Cluster != v.Placement.Cluster || before.Epoch > v.Placement.Epoch) {
		return fmt.Errorf("cluster: etcd has another placement than before: of epoch %d, after %d", v.Placement.Epoch, before.Epoch)
	}
	if err := m.taken(v); err != nil {
		return err
	}
	lost := m.own.Observe(v.View, sent, m.now())
	if m.own.Gone() {
		return errGone
	}
	m.view, m.prior, m.beats = v, m.beats, v.Beats
	p := m.own.Placement()
	if before == nil || before.Epoch < p.Epoch {
		for i := range p.Shards { // before clients hear of them
			if _, _, ok := m.own.Opening(i); ok {
				m.server.SetShard(i, server.ShardHeld)
			}
		}
		m.server.SetPlacement(m.message(), p.Epoch, m.own.Number())
		m.peers.keep(p)
	}
	for _, i := range lost {
		m.lose(i)
	}
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

// taken returns an error if the former life of this server goes on. mu must be held.
func (m *Member) taken(v *view) error {
	const late = 2 // beats that a life has sent before it ended
	for l, revision := range v.Beats {
		if before, known := m.beats[l]; known && l.ID == m.self.ID && l != m.self.Life && revision > before {
			if m.former++; m.former > late {
				return fmt.Errorf("cluster: %w: %s", ErrTaken, l.ID)
			}
		}
	}
	return nil
}

// message returns what clients are told. mu must be held.
func (m *Member) message() []byte {
	p := m.own.Placement()
	told := place.Message{Placement: *p, Server: m.own.Number(), Version: m.own.Version(), Readable: make([]bool, len(p.Shards))}
	return told.Append(nil)
}

// lose removes what is left of a shard that another member owns. mu must be held.
func (m *Member) lose(i int) {
	if g := m.giving; g == nil || g.shard != i || !g.dropped {
		m.server.SetShard(i, server.ShardHeld)
		m.server.DropShard(i)
	}
	if _, _, ok := m.own.Opening(i); !ok {
		m.server.SetShard(i, server.ShardForeign)
	}
}

// open takes the shards into service that this server owns. mu must be held.
func (m *Member) open(ctx context.Context) {
	for i := range m.own.Placement().Shards {
		epoch, keep, ok := m.own.Opening(i)
		switch {
		case !ok || m.opening[i]:
		case !keep:
			m.serve(i, epoch)
		default:
			m.opening[i] = true
			m.work.Go(func() { m.take(ctx, i, epoch) })
		}
	}
}

// serve serves a shard. mu must be held.
func (m *Member) serve(i int, epoch uint32) {
	m.own.Open(i, epoch)
	m.server.SetShard(i, server.ShardOwned)
}

// change changes the placement if it is this server's turn: to take the place of its former life, or to add a member.
// mu must be held; it is released during the transaction.
func (m *Member) change(ctx context.Context) error {
	v, p := m.view, m.own.Placement()
	if m.own.Number() == 0 {
		former, revision, ok := m.own.Dead(m.now())
		if !ok {
			return nil
		}
		next, err := p.Succeed(m.self)
		if err != nil {
			return err
		}
		compare, end := m.store.ends(former, revision)
		m.own.Sending(former, revision)
		return m.replace(func() (bool, error) { return m.store.replace(ctx, v.revision, next, compare, end) })
	}
	l, ok := m.own.Joining(own.View{Placement: p, Beats: m.alive(v)})
	if !ok {
		return nil
	}
	next, err := p.Join(v.servers[l])
	if err != nil {
		return err
	}
	m.cfg.Logger.Info("cluster: a server joins", "id", l.ID, "address", v.servers[l].Address)
	m.own.Sending(place.Life{}, 0)
	return m.replace(func() (bool, error) { return m.store.replace(ctx, v.revision, next, nil) })
}

// alive returns the beats of a view that are newer than those of the view before. mu must be held.
func (m *Member) alive(v *view) map[place.Life]int64 {
	beats := make(map[place.Life]int64)
	for l, revision := range v.Beats {
		if m.prior[l] != revision && m.prior[l] != 0 {
			beats[l] = revision
		}
	}
	return beats
}

// replace executes a transaction without mu, which must be held. The next beat has its outcome.
func (m *Member) replace(do func() (bool, error)) error {
	m.mu.Unlock()
	_, err := do()
	m.mu.Lock()
	m.hurry()
	return err
}
