package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/place"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/cache/server"
)

// shardCopy is a copy of the records of another server's shard, in memory that no client READs.
type shardCopy struct {
	epoch   uint32 // in which that server owns the shard
	records map[string]*server.Record
	listed  time.Time // before their owner read what time they had left
}

// What moves together: as many shards as a limit allows, of which the records may take so much memory here.
const (
	maxTogether    = 32
	togetherMemory = 64 << 20
)

// resting is how long a member rests after a move, in times of how long that took. Copies, removals and etcd's
// transactions use processors of all members: three quarters of the time are left to what is served.
const resting = 3

// together is how many shards move together. After a move that has failed fewer do: their owner gives a move up that
// takes too long.
type together struct{ n, most int }

// together returns as many as their memory allows. Each needs about its share of a server's.
func (m *Member) together() together {
	n := min(max(togetherMemory/(m.server.Stats().Memory/place.Shards+1), 1), maxTogether)
	return together{n, n}
}

// ended takes the end of a move that took some time, and returns how long the member rests then.
func (t *together) ended(took time.Duration, err error) time.Duration {
	if err != nil {
		t.n = max(t.n/2, 1)
		return 0
	}
	t.n = min(2*t.n, t.most)
	return resting * took
}

// pullAll moves shards here until ctx ends. An owner that a move has failed with is left alone for a while, unless the
// plan was out of date.
func (m *Member) pullAll(ctx context.Context) {
	avoid := make(map[string]time.Time)
	together := m.together()
	requested := true // etcd may have a request without a move: of a former life, or of one that is over
	for ctx.Err() == nil {
		requested = requested && m.store.put(ctx, requestsKey, m.cfg.ID, request{}) != nil
		m.mu.Lock()
		changed := m.changed
		r, address, ok := m.next(avoid, together.n)
		requested = requested || !ok && m.view != nil && m.view.requests[m.cfg.ID].To != ""
		m.mu.Unlock()
		if !ok {
			m.replanned(ctx, changed)
			continue
		}
		begun := time.Now()
		c, err := m.peers.client(ctx, address)
		if err == nil {
			err = m.pull(ctx, c, r)
		}
		if errors.Is(err, cache.ErrMoved) && ctx.Err() == nil {
			m.cfg.Logger.Info("cluster: shards do not come yet", "shards", len(r.Shards), "from", r.From, "error", err)
			requested = true
			m.replanned(ctx, changed)
			continue
		}
		rest := together.ended(time.Since(begun), err)
		if err != nil && ctx.Err() == nil {
			m.cfg.Logger.Warn("cluster: shards do not come", "shards", len(r.Shards), "from", r.From, "error", err)
			avoid[r.From] = time.Now().Add(m.cfg.TTL)
			requested = true
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
		}
	}
}

// replanned waits until there may be another plan: until changed is closed, or for a TTL.
func (m *Member) replanned(ctx context.Context, changed <-chan struct{}) {
	select {
	case <-changed:
	case <-time.After(m.cfg.TTL):
	case <-ctx.Done():
	}
}

// next returns the request for the next moves to this member by the plan, all from one owner, and the owner's address.
// mu must be held.
func (m *Member) next(avoid map[string]time.Time, together int) (r request, address string, ok bool) {
	if m.own == nil || m.own.Number() == 0 || m.view == nil || m.view.drains[m.self.ID] {
		return r, "", false // or the plan is one that does not know yet that this member drains
	}
	p := m.own.Placement()
	for _, move := range p.Plan() {
		from := p.Member(move.From)
		if move.To != m.own.Number() || from == nil || r.From != "" && r.From != from.ID || len(r.Shards) == together ||
			!time.Now().After(avoid[from.ID]) || !m.own.Hears(from.Life, m.now()) {
			continue
		}
		if r.From == "" {
			m.number++
			r = request{To: m.self.ID, Boot: m.self.Boot, From: from.ID, Number: m.number, Shards: make(map[int]uint32)}
			address = from.Address
		}
		r.Shards[move.Shard] = p.Shards[move.Shard].Epoch
	}
	return r, address, r.From != ""
}

// pull copies the records of shards, and has their owner hand them over. It returns when they have a new owner, or the
// move has failed. The error matches [cache.ErrMoved] if the owner does not serve the shards: members that join at about
// the same time have planned with different placements, and one has what another one asks for.
func (m *Member) pull(ctx context.Context, c *cache.Client, r request) error {
	before, err := m.copy(ctx, c, r.Shards, nil)
	if err != nil {
		return err
	}
	if err := m.store.put(ctx, requestsKey, m.self.ID, r); err != nil {
		return err
	}
	var closed reply
	given := func() bool {
		closed = m.view.replies[r.From]
		return closed.isTo(r)
	}
	moved := func() bool {
		for i, epoch := range r.Shards {
			if m.own.Placement().Shards[i].Epoch != epoch {
				return true
			}
		}
		return false
	}
	waits, cancel := context.WithTimeout(ctx, 2*m.cfg.patience)
	defer cancel()
	if err := m.await(waits, func() bool { return given() || moved() }); err != nil {
		return err
	}
	switch {
	case !closed.isTo(r):
		return cache.ErrMoved
	case closed.Version == 0:
		return errKept
	}
	copying, cancel := context.WithTimeout(ctx, m.cfg.patience) // then the owner gives up
	defer cancel()
	copies, err := m.copy(copying, c, r.Shards, before)
	if err != nil {
		return err
	}
	if !m.imported(r.Shards, closed.Version, copies) {
		return errors.New("the copy is out of date")
	}
	r.Imported = closed.Version
	if err := m.store.put(ctx, requestsKey, m.self.ID, r); err != nil {
		return err
	}
	// From now on the owner may make this member the owner at any time.
	version, now := closed.Version, false
	err = m.await(ctx, func() bool {
		now = moved()
		return now || !given() || closed.Version != version
	})
	if err == nil && !now {
		return errKept
	}
	return err
}

// errKept says that a move has failed since the owner has given it up.
var errKept = errors.New("their owner keeps them")

// imported takes copies of shards that their owner has closed with a version, and reports whether all are up to date.
func (m *Member) imported(shards map[int]uint32, version uint32, copies map[int]*shardCopy) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, epoch := range shards {
		if !m.own.Imported(i, epoch, version) {
			return false
		}
		m.copies[i] = copies[i]
	}
	return true
}

// await waits until a condition holds, which it calls with mu held after each view.
func (m *Member) await(ctx context.Context, condition func() bool) error {
	for {
		m.mu.Lock()
		ok, changed := condition(), m.changed
		m.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// batch is how many records are READ together.
const batch = 32

// copy copies the records of shards, without reading again those that have not changed since copies before.
func (m *Member) copy(ctx context.Context, c *cache.Client, shards map[int]uint32, before map[int]*shardCopy) (map[int]*shardCopy, error) {
	all, set := make(map[int]*shardCopy), place.Set{}
	for i, epoch := range shards {
		set[i] = true
		all[i] = &shardCopy{epoch: epoch, records: make(map[string]*server.Record), listed: time.Now()}
	}
	var missing [][]byte
	for cursor := uint64(0); ; {
		step, cancel := m.step(ctx)
		a, err := c.Do(step, &kv.Request{Op: wire.OpList, Value: set.Append(nil), Initial: cursor})
		cancel()
		switch {
		case err != nil:
			return nil, err
		case a.Status != kv.OK:
			return nil, fmt.Errorf("the owner lists nothing: status %d", a.Status)
		}
		for rest := a.Value; len(rest) > 0; {
			var l wire.Listed
			if l, rest, err = wire.ReadListed(rest); err != nil {
				return nil, err
			}
			shard := place.ShardOf(l.Key)
			one := all[shard]
			if one == nil {
				return nil, fmt.Errorf("the owner lists a key of shard %d", shard)
			}
			it := &server.Record{Key: l.Key, Attrs: l.Attrs, Fetched: l.Fetched, CAS: l.CAS, Left: l.Left}
			switch b := before[shard].record(l.Key); {
			case b != nil && b.CAS == l.CAS:
				it.Value, it.Flags = b.Value, b.Flags
			case l.Attrs&wire.AttrVivified == 0: // what a loader has reserved is empty, and no READ finds it
				missing = append(missing, l.Key)
			}
			one.records[string(l.Key)] = it
		}
		if cursor = a.Number; cursor == 0 {
			break
		}
	}
	return all, m.fetch(ctx, c, all, missing)
}

// step returns the context of one request of a copy. An owner that does not reply for two TTLs is dead, or cannot be
// reached from here.
func (m *Member) step(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 2*m.cfg.TTL)
}

// record returns the record of a key, or nil; s may be nil.
func (s *shardCopy) record(key []byte) *server.Record {
	if s == nil {
		return nil
	}
	return s.records[string(key)]
}

// fetch READs the values of records. Those that have expired or were evicted meanwhile are left out, and so are
// those that have changed: the next copy has them.
func (m *Member) fetch(ctx context.Context, c *cache.Client, all map[int]*shardCopy, keys [][]byte) error {
	for len(keys) > 0 {
		n := min(batch, len(keys))
		step, cancel := m.step(ctx)
		results := c.GetMulti(step, keys[:n], nil)
		cancel()
		for i, r := range results {
			one := all[place.ShardOf(keys[i])]
			it := one.record(keys[i])
			switch {
			case errors.Is(r.Err, cache.ErrNotFound) || r.Err == nil && r.CAS != it.CAS:
				delete(one.records, string(keys[i]))
			case r.Err != nil:
				return r.Err
			default:
				it.Value, it.Flags = r.Value, r.Flags
			}
		}
		keys = keys[n:]
	}
	return nil
}

// take puts the records of a shard that this server owns into its memory, and then serves the shard.
func (m *Member) take(ctx context.Context, shard int, epoch uint32) {
	m.mu.Lock()
	c := m.copies[shard]
	m.mu.Unlock()
	for _, it := range c.records {
		if err := m.server.Import(ctx, it, time.Since(c.listed)); err != nil {
			return // the server, or the member, is closed
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.copies, shard)
	delete(m.opening, shard)
	if e, _, ok := m.own.Opening(shard); ok && e == epoch {
		m.counts.Moves++
		m.serve(shard, epoch)
	}
}
