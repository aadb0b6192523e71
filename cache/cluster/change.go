package cluster

import (
	"context"

	"github.com/goverbs/goverbs/cache/internal/own"
	"github.com/goverbs/goverbs/cache/internal/place"
)

// change changes the placement: it takes over the shards of a member that is dead, or of the former life of this server,
// or adds a member. mu must be held; it is released during the transaction.
func (m *Member) change(ctx context.Context) error {
	v, p := m.view, m.own.Placement()
	if dead, revision, ok := m.own.Dead(m.now()); ok {
		return m.takeOver(ctx, dead, revision)
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

// takeOver ends a life, of which the key has a revision, unless it beats once more. mu must be held; it is released during
// the transaction.
func (m *Member) takeOver(ctx context.Context, dead place.Life, revision int64) error {
	p, read := m.own.Placement(), m.view.revision
	next, err := p.TakeOver(dead)
	if m.own.Number() == 0 {
		next, err = p.Succeed(m.self)
	}
	if err != nil {
		return err
	}
	compare, end := m.store.ends(dead, revision)
	m.own.Sending(dead, revision)
	m.dead = dead
	m.cfg.Logger.Warn("cluster: a member is dead: its shards are taken over without records", "id", dead.ID)
	return m.replace(func() (bool, error) { return m.store.replace(ctx, read, next, compare, end) })
}

// alive returns the beats of a view that are newer than those of the view before. mu must be held.
func (m *Member) alive(v *view) map[place.Life]int64 {
	beats := make(map[place.Life]int64)
	for l, revision := range v.Beats {
		if m.prior[l] != revision && m.prior[l] != 0 && v.ttls[l] == m.cfg.TTL {
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
