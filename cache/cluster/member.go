package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cache/internal/own"
	"github.com/goverbs/goverbs/cache/internal/place"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/internal/loglimit"
)

// ErrTaken means that another running server has the id of this one.
var ErrTaken = errors.New("another server has this id")

// ErrTTL means that members have another TTL than this one.
var ErrTTL = errors.New("members have another TTL")

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
	shut   func() error  // closes the store, once

	mu      sync.Mutex // of what follows
	self    place.Server
	own     *own.Server // nil before the first view
	view    *view       // the last one
	changed chan struct{}
	beats   map[place.Life]int64    // of the last view
	prior   map[place.Life]int64    // of the one before
	former  int                     // beats of a former life that were seen in this one
	seen    map[place.Life]sighting // of members with another TTL, the first ones
	idle    map[place.Life]sighting // of servers that are no members, the last ones
	copies  map[int]*shardCopy      // of shards that this member is about to own
	opening map[int]bool            // that are being imported
	giving  *giving                 // the shards that this member hands over; nil: none
	refused reply                   // to the request that this member has given up; zero: none
	number  uint64                  // of the last request
	counts  Status                  // of which these are the counters alone
	dead    place.Life              // the member that was found to be dead last; zero: it has ended
	leaving bool                    // Drain is under way
	left    bool                    // Drain has handed over everything, or there was nothing, and ends this life
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
	m := &Member{cfg: cfg, server: s, peers: newPeers(&cfg), begun: time.Now(), hint: make(chan struct{}, 1), done: make(chan struct{}),
		changed: make(chan struct{}), copies: make(map[int]*shardCopy), opening: make(map[int]bool), seen: make(map[place.Life]sighting)}
	if err := s.JoinCluster(m.promise); err != nil {
		return nil, err
	}
	m.store = openStore(&cfg, cfg.TTL/4)
	m.shut = sync.OnceValue(m.store.close)
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() {
		defer close(m.done)
		m.run(ctx)
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
	return m.shut()
}

func (m *Member) now() time.Duration { return time.Since(m.begun) }

// hurry has the next beat come at once.
func (m *Member) hurry() {
	select {
	case m.hint <- struct{}{}:
	default:
	}
}

// run lives one life after the other until ctx ends, or the server can be no member.
func (m *Member) run(ctx context.Context) {
	for {
		err := m.live(ctx)
		if ctx.Err() != nil {
			return
		}
		m.forget(ctx)
		if !errors.Is(err, errGone) || m.drained() {
			m.gone(err)
			return
		}
		m.cfg.Logger.Warn("cluster: the server was silent for too long: others have its shards, and it joins again")
		m.endLife()
	}
}

// live beats until ctx ends, or this life of the server is over. It returns why.
func (m *Member) live(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer m.work.Wait()
	defer stop()
	m.work.Go(func() { m.store.watch(ctx, watcher{id: m.cfg.ID, changed: m.hurry, beat: m.saw}) })
	m.work.Go(func() { m.pullAll(ctx) })
	m.work.Go(func() { m.askAll(ctx) })
	tick := time.NewTicker(m.cfg.own().Beat())
	defer tick.Stop()
	for {
		err := m.beat(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errGone) || errors.Is(err, ErrTaken) || errors.Is(err, ErrTTL):
			return err
		case err != nil:
			m.cfg.Logger.Warn("cluster: nothing moves", "error", err)
		}
		select {
		case <-tick.C:
		case <-m.due():
		case <-m.hint:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// forget deletes the key of this life, which is over. One that is a member needs it: to take it over means to compare it.
func (m *Member) forget(ctx context.Context) {
	m.mu.Lock()
	life, member := m.self.Life, m.own == nil || m.own.Number() != 0
	m.mu.Unlock()
	if member {
		return
	}
	if err := m.store.forget(ctx, life); err != nil {
		m.cfg.Logger.Warn("cluster: the key of a former life stays", "error", err)
	}
}

// drained reports whether Drain ends this life.
func (m *Member) drained() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.left
}

// gone notes that the membership has ended, which is no error if Drain has ended it.
func (m *Member) gone(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.left || !errors.Is(err, errGone) {
		m.cfg.Logger.Error("cluster: the server is no member any more", "error", err)
		m.err = err
	}
}

// endLife forgets this life, of which others have taken over the shards, with all records.
func (m *Member) endLife() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.server.EndLife()
	m.own, m.view, m.beats, m.prior, m.former, m.giving, m.refused = nil, nil, nil, nil, 0, nil, reply{}
	clear(m.copies)
	clear(m.opening)
}

// follow does what a placement asks for that follows another one, and takes the deadline. mu must be held.
func (m *Member) follow(before *place.Placement, lost []int) {
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
	m.lose(lost)
	m.extend()
	if m.dead != (place.Life{}) && p.Number(m.dead) == 0 {
		m.dead = place.Life{}
		m.counts.Takeovers++
	}
	for i, c := range m.copies {
		if _, keep, ok := m.own.Opening(i); (!ok || !keep) && p.Shards[i].Epoch != c.epoch { // its owner has not handed it over
			delete(m.copies, i)
		}
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

// extend has the server serve until the deadline, or nothing from now on if others have its shards. mu must be held.
func (m *Member) extend() {
	deadline := m.own.Deadline()
	if m.own.Gone() {
		deadline = 0
	}
	m.server.SetDeadline(m.begun.Add(deadline))
}

// message returns what clients are told. mu must be held.
func (m *Member) message() []byte {
	p := m.own.Placement()
	told := place.Message{Placement: *p, Server: m.own.Number(), Version: m.own.Version(), Readable: make([]bool, len(p.Shards))}
	return told.Append(nil)
}

// lose removes what is left of shards that other members own, or that this one owns anew. mu must be held.
func (m *Member) lose(lost []int) {
	var left []int
	for _, i := range lost {
		if g := m.giving; g == nil || !g.dropped || !slices.Contains(g.numbers(), i) {
			m.server.SetShard(i, server.ShardHeld)
			left = append(left, i)
		}
	}
	if len(left) > 0 {
		m.server.Drop(left...)
	}
	for _, i := range lost {
		if _, _, ok := m.own.Opening(i); !ok {
			m.server.SetShard(i, server.ShardForeign)
		}
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
