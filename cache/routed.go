package cache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/goverbs/goverbs/cache/internal/place"
	"github.com/goverbs/goverbs/cache/internal/rendezvous"
	"github.com/goverbs/goverbs/cache/internal/wire"
)

// routes say which server has which keys. They do not change: others take their place.
type routes struct {
	clients []*Client
	list    *rendezvous.List // by the place of a client; nil if there is a placement
	cluster [16]byte
	epoch   uint32              // of the placement
	owner   [place.Shards]uint8 // the place of its client
	number  [place.Shards]uint8 // of the owner in the placement
	next    chan struct{}       // closed when there are other routes
}

// of returns the place of the client of a key's server.
func (r *routes) of(key []byte) int {
	if r.list != nil {
		return r.list.Of(key)
	}
	return int(r.owner[place.ShardOf(key)])
}

// server returns the client of a key's server.
func (r *routes) server(key []byte) *Client { return r.clients[r.of(key)] }

// toldPlacement takes the placement of the server's cluster.
func (s *session) toldPlacement(b []byte) error {
	b, err := wire.ReadPlacement(b)
	if err != nil {
		return err
	}
	var m place.Message
	if err := m.Decode(b); err != nil {
		return err
	}
	s.before = noPlacement
	if s.c.placed != nil {
		s.c.placed(&m)
		s.c.told.Store(uint64(m.Epoch)<<8 | uint64(m.Server)) // after the routes
	}
	return nil
}

// noPlacement is what Client.told has of a server that refuses a key and knows no placement: it has no number, and none
// of what others have said of its address is about it.
const noPlacement = math.MaxUint64 &^ 0xff

// gone returns the error of an operation on a key: ErrUnavailable instead of ErrMoved if the server at the address of
// the owner says that it is another one. The owner has died then, or has another address.
func (r *routes) gone(key []byte, err error) error {
	if err == nil || r.list != nil || !errors.Is(err, ErrMoved) {
		return err
	}
	one := r.server(key)
	told := one.told.Load()
	if told>>8 < uint64(r.epoch) || uint8(told) == r.number[place.ShardOf(key)] {
		return err
	}
	return fmt.Errorf("%w: %s: another server has this address", ErrUnavailable, one.address)
}

// placed takes a placement from any server. Those of several servers overtake each other. A placement in
// which a shard has no owner is no table of routes.
func (c *Cluster) placed(m *place.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.routes.Load()
	if c.closed || before.list == nil && (m.Cluster != before.cluster || m.Epoch <= before.epoch) {
		return
	}
	r := &routes{cluster: m.Cluster, epoch: m.Epoch, next: make(chan struct{})}
	there := make(map[string]*Client)
	for _, one := range before.clients {
		there[one.address] = one
	}
	var at [256]uint8
	places := make(map[string]uint8) // one that has died may have its address with the one that has come for it
	var fresh []*Client
	for s := range m.Members() {
		if i, ok := places[s.Address]; ok {
			at[s.Number] = i
			continue
		}
		one := there[s.Address]
		if delete(there, s.Address); one == nil {
			var err error
			if one, err = newClient(s.Address, c.cfg.Config); err != nil {
				return // no member has such an address: see [place.Message]
			}
			one.placed = c.placed
			fresh = append(fresh, one)
		}
		places[s.Address], at[s.Number] = uint8(len(r.clients)), uint8(len(r.clients))
		r.clients = append(r.clients, one)
	}
	for i, s := range m.Shards {
		if s.Owner == 0 {
			return
		}
		r.owner[i], r.number[i] = at[s.Owner], s.Owner
	}
	for _, one := range fresh {
		go one.keep(nil)
	}
	c.routes.Store(r)
	close(before.next)
	for _, one := range there { // this may be the goroutine of one
		c.left.Go(func() { _ = one.Close() })
	}
}

// How long an operation waits for other routes before it is repeated all the same.
const (
	firstPause = time.Millisecond
	maxDoubled = 6 // times
)

// again reports whether an operation that was the nth by some routes, and ended with err, is to be repeated, after a
// pause if there are no other routes yet. It returns soon after ctx has ended: the operation finds that.
func (c *Cluster) again(ctx context.Context, r *routes, n int, err error) bool {
	if !c.repeats(r, err) {
		return false
	}
	pause := time.NewTimer(firstPause << min(n, maxDoubled))
	defer pause.Stop()
	select {
	case <-r.next:
	case <-pause.C:
	case <-ctx.Done():
	}
	return true
}

// repeats reports whether an operation has not been executed, since its key moves or there is a new member to which
// there is no connection yet.
func (c *Cluster) repeats(r *routes, err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, ErrMoved):
		return true
	case r.list != nil || errors.Is(err, ErrOutcomeUnknown):
		return false
	case errors.Is(err, errConnecting):
		return true
	case errors.Is(err, ErrUnavailable) || errors.Is(err, ErrClosed): // the server may be no member any more
		return c.routes.Load() != r
	}
	return false
}
