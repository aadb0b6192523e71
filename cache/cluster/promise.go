package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/place"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// While etcd is silent each member asks all others for promises not to take over its shards for a TTL. The promises of
// all are as good as a beat that etcd has confirmed. A member that knows a newer placement replies with that instead.

// asked is what a member asks another one for.
type asked struct {
	By    place.Life `json:"by"`
	Of    place.Life `json:"of"`
	Epoch uint32     `json:"epoch"` // of the placement that it knows
}

// askAll asks for promises while etcd is silent, until ctx ends.
func (m *Member) askAll(ctx context.Context) {
	tick := time.NewTicker(m.cfg.own().Beat())
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.round(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// round asks all other members once if etcd is silent. It waits for their replies for the time of two beats.
func (m *Member) round(live context.Context) {
	ctx, cancel := context.WithTimeout(live, 2*m.cfg.own().Beat())
	defer cancel()
	var others sync.WaitGroup
	defer others.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	sent := m.now()
	if m.own == nil || !m.own.Silent(sent) {
		return
	}
	before, p := m.own.Deadline(), m.own.Placement()
	epoch, members := m.own.Ask(sent)
	m.promised(before) // there may be no others
	for _, life := range members {
		address := p.Member(p.Number(life)).Address
		others.Go(func() { m.ask(ctx, live, address, asked{m.self.Life, life, epoch}, sent) })
	}
}

// promised takes the deadline if it is a later one. mu must be held.
func (m *Member) promised(before time.Duration) {
	if m.own.Deadline() > before {
		m.counts.Promises++
		m.extend()
	}
}

// ask asks another member for a promise. What it learns is done until live ends.
func (m *Member) ask(ctx, live context.Context, address string, a asked, sent time.Duration) {
	c, err := m.peers.client(ctx, address)
	if err != nil {
		return
	}
	b, err := json.Marshal(a)
	if err != nil {
		return
	}
	reply, err := c.Do(ctx, &kv.Request{Op: wire.OpPromise, Value: b})
	if err != nil && !errors.Is(err, cache.ErrMoved) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.own.Deadline()
	if reply.Status == kv.OK {
		m.own.Promised(a.Of, sent)
		m.promised(before)
	} else if p, err := place.Parse(reply.Value); err == nil {
		m.learn(live, p)
	}
}

// promise replies to another member.
func (m *Member) promise(b []byte) (reply []byte, ok bool) {
	var a asked
	if err := json.Unmarshal(b, &a); err != nil {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.own == nil || m.own.Placement() == nil {
		return nil, false
	}
	if m.own.Promise(a.Of, a.By, a.Epoch, m.now()) {
		return nil, true
	}
	if p := m.own.Placement(); p.Epoch > a.Epoch {
		reply, _ = p.Format() // etcd has had it, so it can be written
	}
	return reply, false
}
