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
	if next := m.ordered(); next != nil {
		return m.replace(ctx, func() (*place.Placement, error) { return m.store.replace(ctx, v.revision, next, nil) })
	}
	l, ok := m.own.Joining(own.View{Placement: p, Beats: m.alive(v)})
	if !ok {
		return m.sweep(ctx)
	}
	next, err := p.Join(v.servers[l])
	if err != nil {
		return err
	}
	m.cfg.Logger.Info("cluster: a server joins", "id", l.ID, "address", v.servers[l].Address)
	return m.send(ctx, place.Life{}, 0, func() (*place.Placement, error) { return m.store.replace(ctx, v.revision, next, m.store.exists(l)) })
}

// ordered returns the placement in which this member drains, or does not any more, as an operator or Drain wants it; nil if
// it does so already. mu must be held.
func (m *Member) ordered() *place.Placement {
	p := m.own.Placement()
	me := p.Member(m.own.Number())
	drain := m.leaving || m.view.drains[m.self.ID]
	if me == nil || drain == (me.State == place.Draining) || drain && !others(p, me.Number) {
		return nil
	}
	next, err := p.Drain(m.self.Life, drain)
	if err != nil {
		return nil // it is no member
	}
	return next
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
	m.dead = dead
	m.cfg.Logger.Warn("cluster: a member is dead: its shards are taken over without records", "id", dead.ID)
	return m.send(ctx, dead, revision, func() (*place.Placement, error) { return m.store.replace(ctx, read, next, compare, end) })
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

// abandoned is after how many TTLs without a beat the key of a server that is no member is deleted.
const abandoned = 10

// sweep deletes the keys of servers that have died before they were members, or of which etcd has executed a beat after
// it has deleted the key. One that only hung writes it again. mu must be held; it is released during the transaction.
func (m *Member) sweep(ctx context.Context) error {
	v, idle := m.view, make(map[place.Life]sighting)
	var dead place.Life
	for l, revision := range v.Beats {
		if v.Placement.Number(l) != 0 {
			continue
		}
		last := m.idle[l]
		if last.revision != revision {
			last = sighting{revision, m.now()}
		}
		idle[l] = last
		if m.now()-last.at > abandoned*m.cfg.TTL {
			dead = l
		}
	}
	m.idle = idle
	if dead == (place.Life{}) {
		return nil
	}
	m.mu.Unlock()
	defer m.mu.Lock()
	compare, end := m.store.ends(dead, idle[dead].revision)
	_, err := m.store.do(ctx, compare, nil, end)
	return err
}

// send is replace of a transaction that ends a life while its key has a revision, or adds a member: see [own.Server.Sending].
func (m *Member) send(ctx context.Context, life place.Life, revision int64, do func() (*place.Placement, error)) error {
	m.own.Sending(life, revision)
	err := m.replace(ctx, do)
	if err == nil {
		m.own.Failed(life, revision) // or executed, and learnt
	}
	return err
}

// replace executes a transaction without mu, which must be held. It takes the placement that etcd has after it. With an
// error the transaction may be executed later.
func (m *Member) replace(ctx context.Context, do func() (*place.Placement, error)) error {
	m.mu.Unlock()
	p, err := do()
	m.mu.Lock()
	m.hurry()
	if err == nil {
		m.learn(ctx, p)
	}
	return err
}

// learn takes a placement that etcd has or had, from any reply. mu must be held.
func (m *Member) learn(ctx context.Context, p *place.Placement) {
	before := m.own.Placement()
	if p.Cluster != before.Cluster || p.Epoch <= before.Epoch {
		return
	}
	lost := m.own.Learn(p, m.now())
	if m.own.Gone() { // the next beat finds that
		m.extend()
		return
	}
	m.follow(before, lost)
	m.open(ctx)
}
