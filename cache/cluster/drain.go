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

// Drain hands over all shards, and then leaves the cluster. It returns nil when the server may end without a loss, and
// an error if ctx has ended before, or [ErrLast] if there is no other member.
func (m *Member) Drain(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("cluster: drain: %w", err)
		}
		m.mu.Lock()
		var next *place.Placement
		var err error
		changed := m.changed
		joined := m.own != nil && m.own.Number() != 0
		var revision int64
		var ops []clientv3.Op
		if joined {
			p := m.own.Placement()
			revision = m.view.revision
			switch me := p.Member(m.own.Number()); {
			case !others(p, me.Number):
				err = fmt.Errorf("cluster: %w", ErrLast)
			case me.State != place.Draining:
				next, err = p.Drain(m.self.Life, true)
			case p.Owned(me.Number) == 0:
				next, err = p.TakeOver(m.self.Life)
				m.left = true
				ops = append(ops, clientv3.OpDelete(m.store.lifeKey(m.self.Life)))
			}
		}
		m.mu.Unlock()
		if !joined {
			return nil
		}
		if err == nil && next != nil {
			if _, err := m.store.replace(ctx, revision, next, nil, ops...); err != nil { // it is tried again
				m.cfg.Logger.Warn("cluster: drain", "error", err)
			}
			m.hurry()
		}
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-m.done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("cluster: drain: %w", ctx.Err())
		}
	}
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
