package cluster

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/goverbs/goverbs/cache/internal/place"
)

// ErrLast means that a member has no other one to hand its shards to.
var ErrLast = errors.New("no other member takes the shards")

// errEnded means that a life of a member has ended before a drain has handed over its shards.
var errEnded = errors.New("the server is no member any more, and its records are lost")

// Drain hands over all shards, and then leaves the cluster; a server that is no member yet does not become one. It
// returns nil when the server may end without a loss. It returns an error if ctx has ended before, if others have taken
// over the shards meanwhile, or the member has ended, and [ErrLast] if there is no other member. If ctx has ended, the
// member goes on to hand over its shards, but does not leave, until Drain is called again, or Close.
func (m *Member) Drain(ctx context.Context) error {
	m.mu.Lock()
	life, begun := m.self.Life, m.own != nil
	m.leaving, m.left = true, !begun || m.own.Number() == 0
	m.mu.Unlock()
	if !begun {
		return nil
	}
	m.hurry()
	err := m.drain(ctx, life)
	if err == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = false
	if errors.Is(err, ErrLast) {
		m.leaving = false
	}
	return fmt.Errorf("cluster: drain: %w", err)
}

// withdraw deletes the key of a life that is to leave and is no member, and reports whether it remains none: others add
// it only while it has the key. If etcd is silent that is not known: then others find out that it is dead.
func (m *Member) withdraw(ctx context.Context) bool {
	m.mu.Lock()
	life, leaves := m.self.Life, m.left && m.own.Number() == 0
	m.mu.Unlock()
	if !leaves {
		return false
	}
	v, err := m.store.read(ctx, clientv3.OpDelete(m.store.lifeKey(life)))
	return err != nil || v.Placement == nil || v.Placement.Number(life) == 0
}

// drain is Drain of a life that has begun.
func (m *Member) drain(ctx context.Context, life place.Life) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		m.mu.Lock()
		changed := m.changed
		next, ops, over, err := m.leave(life)
		var revision int64
		if next != nil {
			revision = m.view.revision
		}
		m.mu.Unlock()
		if over || err != nil {
			return err
		}
		if next != nil {
			if _, err := m.store.replace(ctx, revision, next, nil, ops...); err != nil { // it is tried again
				m.cfg.Logger.Warn("cluster: drain", "error", err)
			}
			m.hurry()
		}
		select {
		case <-changed:
		case <-m.done:
			return m.hasLeft(life)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leave returns the placement with which a drain of a life goes on, or nil, and what else that transaction does; or
// that the drain is over. mu must be held.
func (m *Member) leave(life place.Life) (next *place.Placement, ops []clientv3.Op, over bool, err error) {
	if m.own == nil || m.self.Life != life || m.own.Gone() {
		return nil, nil, true, m.lost(life)
	}
	if m.own.Number() == 0 {
		return nil, nil, false, nil // it withdraws with the next beat, unless that finds that it is a member
	}
	p := m.own.Placement()
	me := p.Member(m.own.Number())
	// What others do after that they do with shards without records.
	m.left = me.State == place.Draining && p.Owned(me.Number) == 0
	switch {
	case !others(p, me.Number):
		err = ErrLast
	case me.State != place.Draining:
		next, err = p.Drain(life, true)
	case m.left:
		next, err = p.TakeOver(life)
		ops = append(ops, clientv3.OpDelete(m.store.lifeKey(life)))
	}
	return next, ops, false, err
}

// hasLeft returns lost of a member that has ended, or the error with which it has.
func (m *Member) hasLeft(life place.Life) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.lost(life); err == nil || m.err == nil {
		return err
	}
	return m.err
}

// lost returns an error unless a life has left the cluster without shards. mu must be held.
func (m *Member) lost(life place.Life) error {
	if m.left && m.own != nil && m.self.Life == life && m.own.Number() == 0 {
		return nil
	}
	return errEnded
}

// others reports whether a placement has a member that takes shards, besides the one with a number.
func others(p *place.Placement, number uint8) bool {
	for s := range p.Members() {
		if s.Number != number && s.State == place.Member {
			return true
		}
	}
	return false
}
