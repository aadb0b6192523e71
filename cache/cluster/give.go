package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/goverbs/goverbs/cache/internal/own"
	"github.com/goverbs/goverbs/cache/internal/place"
	"github.com/goverbs/goverbs/cache/server"
)

// request is what a member asks of the owner of shards that it is to own next. Only the member writes it.
type request struct {
	To       string         `json:"to"` // its id and boot number
	Boot     uint64         `json:"boot,string"`
	From     string         `json:"from"`               // the owner's id
	Number   uint64         `json:"number"`             // of the request, of those of its life
	Shards   map[int]uint32 `json:"shards"`             // with the epochs in which the owner owns them
	Imported uint32         `json:"imported,omitempty"` // the version of a reply: the member has all records
}

// reply says that an owner executes no changes of the shards of a request until the member has the records. Only
// the owner writes it.
type reply struct {
	To      string `json:"to"`
	Boot    uint64 `json:"boot,string"`
	Number  uint64 `json:"number"`
	Version uint32 `json:"version"` // of the last closing; 0: the owner does not hand over the shards
}

// isTo reports whether a reply is to a request.
func (r reply) isTo(q request) bool {
	return r.To == q.To && r.Boot == q.Boot && r.Number == q.Number
}

// giving are shards that this member hands over together.
type giving struct {
	reply
	shards   []own.Closing
	since    time.Time
	dropping bool // their records go: they are not taken back
	dropped  bool // their records are gone
}

// numbers returns the numbers of the shards.
func (g *giving) numbers() (all []int) {
	for _, c := range g.shards {
		all = append(all, c.Shard)
	}
	return all
}

// give goes on with the shards that are handed over, or begins with others. mu must be held.
func (m *Member) give(ctx context.Context) error {
	if m.giving == nil {
		if !m.refused.isTo(m.view.requests[m.refused.To]) {
			m.refused = reply{}
		}
		if m.view.replies[m.self.ID] != m.refused { // of a transaction that was late, or had no reply
			return m.tell(ctx, m.refused)
		}
		return m.close(ctx)
	}
	g, p := m.giving, m.own.Placement()
	switch {
	case g.dropping && !g.dropped: // what would be stored meanwhile would go, too
		return nil
	case slices.ContainsFunc(g.shards, func(c own.Closing) bool { return p.Shards[c.Shard].Epoch != c.Epoch }): // they have another owner
		m.counts.Given += uint64(len(g.shards))
		return m.end(ctx)
	case !m.closed(g.shards): // the next owner has ended
		m.serveAgain(g.shards)
		return m.end(ctx)
	}
	r := m.view.requests[g.To]
	requested := g.isTo(r)
	if g.dropping || requested && r.Imported == g.Version {
		return m.release(ctx)
	}
	if (!requested || time.Since(g.since) > m.cfg.patience) && m.cancel(g.shards) {
		m.cfg.Logger.Warn("cluster: shards stay, since their next owner does not take them", "shards", len(g.shards), "to", g.To)
		m.refused = reply{To: g.To, Boot: g.Boot, Number: g.Number}
		return m.end(ctx)
	}
	return nil
}

// closed reports whether all shards are closed. mu must be held.
func (m *Member) closed(all []own.Closing) bool {
	for _, c := range all {
		if !m.own.Closed(c.Shard, c.Version) {
			return false
		}
	}
	return true
}

// cancel takes closed shards into service again, unless a transaction that releases them may be executed. mu must be held.
func (m *Member) cancel(all []own.Closing) bool {
	for _, c := range all {
		if !m.own.Cancel(c.Shard, c.Version) {
			return false
		}
	}
	m.serveAgain(all)
	return true
}

// serveAgain executes changes of shards that are not handed over. mu must be held.
func (m *Member) serveAgain(all []own.Closing) {
	for _, c := range all {
		m.server.SetShard(c.Shard, server.ShardOwned)
	}
}

// close begins to hand over the shards of a request of another member. mu must be held.
func (m *Member) close(ctx context.Context) error {
	for _, r := range m.view.requests {
		to := place.Life{ID: r.To, Boot: r.Boot}
		if r.From != m.self.ID || len(r.Shards) == 0 || r.Imported != 0 || m.refused.isTo(r) || !m.own.Hears(to, m.now()) {
			continue
		}
		all, ok := m.closeAll(r.Shards, to)
		if !ok {
			m.cancel(all)
			continue
		}
		g := &giving{reply: reply{To: r.To, Boot: r.Boot, Number: r.Number}, shards: all, since: time.Now()}
		for _, c := range all {
			g.Version = max(g.Version, c.Version)
		}
		m.giving = g
		return m.tell(ctx, g.reply)
	}
	return nil
}

// closeAll closes shards for a member, and reports whether this member owned all in the epochs. mu must be held.
func (m *Member) closeAll(shards map[int]uint32, to place.Life) (all []own.Closing, ok bool) {
	for i, epoch := range shards {
		if i < 0 || i >= place.Shards {
			return all, false
		}
		version, ok := m.own.Close(i, epoch, to)
		if !ok {
			return all, false
		}
		all = append(all, own.Closing{Shard: i, Epoch: epoch, Version: version})
		m.server.SetShard(i, server.ShardReadOnly)
	}
	return all, true
}

// release removes the records of the shards, and then makes the requesting member their owner. mu must be held; it is
// released during the transaction.
func (m *Member) release(ctx context.Context) error {
	g := m.giving
	if !g.dropping {
		g.dropping = true
		for _, i := range g.numbers() {
			m.server.SetShard(i, server.ShardHeld)
		}
		m.work.Go(func() { m.drop(g) })
	}
	if !g.dropped {
		return nil
	}
	next, ok := m.own.Release(g.shards...)
	if !ok {
		return nil
	}
	revision := m.view.revision
	return m.replace(ctx, func() (*place.Placement, error) { return m.store.replace(ctx, revision, next, nil) })
}

// drop removes the records of shards that are handed over. Meanwhile the member beats, and replies to others.
func (m *Member) drop(g *giving) {
	m.server.Drop(g.numbers()...)
	m.mu.Lock()
	defer m.mu.Unlock()
	g.dropped = true
	m.hurry()
}

// end ends a move, whatever its outcome. mu must be held.
func (m *Member) end(ctx context.Context) error {
	m.counts.Held += time.Since(m.giving.since)
	m.giving = nil
	m.hurry()
	return m.tell(ctx, m.refused)
}

// tell writes the reply of this member. mu must be held; it is released during the transaction.
func (m *Member) tell(ctx context.Context, r reply) error {
	m.mu.Unlock()
	defer m.mu.Lock()
	return m.store.put(ctx, repliesKey, m.self.ID, r)
}
