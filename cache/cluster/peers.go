package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/internal/place"
)

// peers are clients of other members, by address, each of which is connected when it is first needed.
type peers struct {
	cfg     cache.Config
	timeout time.Duration // of a connection

	mu      sync.Mutex
	clients map[string]*cache.Client
	closing sync.WaitGroup
}

func newPeers(cfg *Config) *peers {
	return &peers{cfg: cfg.Client, timeout: cfg.TTL, clients: make(map[string]*cache.Client)}
}

// client returns the client of the member at an address.
func (p *peers) client(ctx context.Context, address string) (*cache.Client, error) {
	if c := p.known(address); c != nil {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	c, err := cache.Dial(ctx, address, p.cfg)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.clients[address]; other != nil {
		p.close(c)
		return other, nil
	}
	p.clients[address] = c
	return c, nil
}

func (p *peers) known(address string) *cache.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clients[address]
}

// keep closes the clients of servers that are no members of a placement, and with nil all of them, for which it waits.
func (p *peers) keep(members *place.Placement) {
	there := make(map[string]bool)
	if members != nil {
		for s := range members.Members() {
			there[s.Address] = true
		}
	} else {
		defer p.closing.Wait()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, c := range p.clients {
		if !there[address] {
			delete(p.clients, address)
			p.close(c)
		}
	}
}

// close closes a client, and does not wait for its operations.
func (p *peers) close(c *cache.Client) { p.closing.Go(func() { _ = c.Close() }) }
