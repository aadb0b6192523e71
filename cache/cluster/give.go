package cluster

import (
	"context"
	"time"

	"github.com/goverbs/goverbs/cache/internal/place"
	"github.com/goverbs/goverbs/cache/server"
)

// request is what a member asks of the owner of a shard that it is to own next. Only the member writes it.
type request struct {
	To       string `json:"to"` // its id and boot number
	Boot     uint64 `json:"boot,string"`
	From     string `json:"from"` // the owner's id
	Shard    int    `json:"shard"`
	Epoch    uint32 `json:"epoch"`              // in which the owner owns it
	Imported uint32 `json:"imported,omitempty"` // the version of a reply: the member has all records
}

// reply says that an owner executes no changes of a shard until the member that has requested it has the records. Only
// the owner writes it.
type reply struct {
	To      string `json:"to"`
	Boot    uint64 `json:"boot,string"`
	Shard   int    `json:"shard"`
	Epoch   uint32 `json:"epoch"`
	Version uint32 `json:"version"` // of the closing; 0: the owner hands nothing over
}

// giving is a shard that this member hands over.
type giving struct {
	reply
	shard   int
	since   time.Time
	dropped bool // its records are gone: it is no longer taken back
}

// give goes on with the shard that is handed over, or begins with another one. mu must be held.
func (m *Member) give(ctx context.Context) error {
	if m.giving == nil {
		if m.view.replies[m.self.ID] != (reply{}) { // of a transaction that was late, or had no reply
			return m.tell(ctx, reply{})
		}
		return m.close(ctx)
	}
	g := m.giving
	switch p := m.own.Placement(); {
	case p.Shards[g.shard].Epoch != g.Epoch || p.Shards[g.shard].Owner != m.own.Number(): // it has another owner
		m.counts.Given++
		return m.end(ctx)
	case !m.own.Closed(g.shard, g.Version, m.now()): // the next owner has ended
		m.server.SetShard(g.shard, server.ShardOwned)
		return m.end(ctx)
	}
	r := m.view.requests[g.To]
	requested := r.Boot == g.Boot && r.Shard == g.shard && r.Epoch == g.Epoch
	if g.dropped || requested && r.Imported == g.Version {
		return m.release(ctx)
	}
	if (!requested || time.Since(g.since) > m.cfg.patience) && m.own.Cancel(g.shard, g.Version) {
		m.cfg.Logger.Warn("cluster: a shard stays, since its next owner does not take it", "shard", g.shard, "to", g.To)
		m.server.SetShard(g.shard, server.ShardOwned)
		return m.end(ctx)
	}
	return nil
}

// close begins to hand over a shard that another member has requested. mu must be held.
func (m *Member) close(ctx context.Context) error {
	for _, r := range m.view.requests {
		if r.From != m.self.ID || r.Shard < 0 || r.Shard >= place.Shards || r.Imported != 0 || !m.own.Hears(place.Life{ID: r.To, Boot: r.Boot}, m.now()) {
			continue
		}
		version, ok := m.own.Close(r.Shard, r.Epoch, place.Life{ID: r.To, Boot: r.Boot})
		if !ok {
			continue
		}
		m.server.SetShard(r.Shard, server.ShardReadOnly)
		if !m.own.Closed(r.Shard, version, m.now()) { // which waits for no client: READs find tombstones
			continue
		}
		m.giving = &giving{reply: reply{r.To, r.Boot, r.Shard, r.Epoch, version}, shard: r.Shard, since: time.Now()}
		return m.tell(ctx, m.giving.reply)
	}
	return nil
}

// release makes the requesting member the owner of the shard. mu must be held; it is released during the
// transaction.
func (m *Member) release(ctx context.Context) error {
	g := m.giving
	if !g.dropped {
		m.server.SetShard(g.shard, server.ShardHeld)
		m.server.DropShard(g.shard)
		g.dropped = true
	}
	next, ok := m.own.Release(g.shard, g.Epoch, g.Version)
	if !ok {
		return nil
	}
	revision := m.view.revision
	return m.replace(ctx, func() (*place.Placement, error) { return m.store.replace(ctx, revision, next, nil) })
}

// end ends a move, whatever its outcome. mu must be held.
func (m *Member) end(ctx context.Context) error {
	m.counts.Held += time.Since(m.giving.since)
	m.giving = nil
	m.hurry()
	return m.tell(ctx, reply{})
}

// tell writes the reply of this member. mu must be held; it is released during the transaction.
func (m *Member) tell(ctx context.Context, r reply) error {
	m.mu.Unlock()
	defer m.mu.Lock()
	return m.store.put(ctx, repliesKey, m.self.ID, r)
}
