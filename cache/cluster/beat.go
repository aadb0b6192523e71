package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cache/internal/own"
	"github.com/goverbs/goverbs/cache/internal/place"
)

// saw takes the revision of the key of a life.
func (m *Member) saw(l place.Life, revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.own != nil {
		m.own.Saw(l, revision, m.now())
	}
}

// due returns a channel that receives when a member is dead that has not beaten for long, or nil.
func (m *Member) due() <-chan time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.own == nil {
		return nil
	}
	now := m.now()
	if at := m.own.Due(now); at != 0 && at-now < m.cfg.own().Beat() {
		return time.After(at - now)
	}
	return nil
}

// beat writes this life's key and reads everything, and then does what that asks for.
func (m *Member) beat(ctx context.Context) error {
	m.mu.Lock()
	begun := m.own != nil
	m.mu.Unlock()
	if !begun {
		if err := m.begin(ctx); err != nil {
			return err
		}
	}
	if m.withdraw(ctx) {
		return errGone
	}
	sent := m.now()
	v, err := m.store.beat(ctx, m.self, m.cfg.TTL)
	m.counted(ctx, sent, err)
	if v == nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := cmp.Or(m.differs(v), err); err != nil {
		return err
	}
	if v.Placement == nil {
		return m.create(ctx)
	}
	if err := m.observe(v, sent); err != nil {
		return err
	}
	m.open(ctx)
	return errors.Join(m.change(ctx), m.give(ctx))
}

// counted counts a beat that was sent at a time.
func (m *Member) counted(ctx context.Context, sent time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.counts.Beats++
		m.counts.Beat = m.now() - sent
	case ctx.Err() == nil:
		m.counts.Missed++
	}
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
	m.own = own.NewServer(m.cfg.own(), m.self.Life, m.now())
	return nil
}

// create writes the first placement, in which this server owns all shards, unless another member has written one. mu must be
// held; it is released during the transaction.
func (m *Member) create(ctx context.Context) error {
	self := m.self
	m.mu.Unlock()
	defer m.mu.Lock()
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	_, err := m.store.replace(ctx, 0, place.New(id, place.Shards, self), nil)
	m.hurry()
	return err
}

// differs returns an error unless etcd has the placement that this member knows, or one that may follow it. mu must be held.
func (m *Member) differs(v *view) error {
	known := m.own.Placement()
	switch {
	case known == nil:
		return nil
	case v.Placement == nil:
		return errors.New("cluster: etcd has lost the placement")
	case known.Cluster != v.Placement.Cluster || known.Epoch > v.Placement.Epoch:
		return fmt.Errorf("cluster: etcd has another placement than before: of epoch %d, after %d", v.Placement.Epoch, known.Epoch)
	}
	return nil
}

// observe takes a view. mu must be held.
func (m *Member) observe(v *view, sent time.Duration) error {
	before := m.own.Placement()
	if err := errors.Join(m.twin(v), m.otherTTL(v)); err != nil {
		return err
	}
	lost := m.own.Observe(v.View, sent, m.now())
	if m.own.Gone() {
		m.extend()
		return errGone
	}
	m.view, m.prior, m.beats = v, m.beats, v.Beats
	m.follow(before, lost)
	return nil
}
