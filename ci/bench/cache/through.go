package cache

import (
	"context"
	"log/slog"
	"os"

	"github.com/goverbs/goverbs/cache"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/dc"
)

const throughRole = "cache-server-through"

// serveThrough is a server with a target to READ through, until it is killed.
func serveThrough(ctx context.Context, at string) error {
	s, err := server.Listen(ctx, at, server.Config{
		Memory: 16 << 20, DC: server.DCConfig{Responders: 1}, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	return s.Serve(ctx)
}

// through is a server with two clients: one has queue pairs to it, and one READs through an initiator.
type through struct {
	*served
	other *cache.Client
}

// newThrough makes one that lasts as long as this process.
func newThrough() (*through, error) {
	s, err := newServedAs(throughRole)
	if err != nil {
		return nil, err
	}
	near, _, err := rig.Endpoints()
	if err != nil {
		return nil, err
	}
	h, err := rig.NewHost(near)
	if err != nil {
		return nil, err
	}
	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: h.PD, GID: h.GID, Contexts: 1})
	if err != nil {
		return nil, err
	}
	c, err := s.dial(cache.Config{DC: i})
	if err != nil {
		return nil, err
	}
	if err := s.whole(c, len(sizes)); err != nil {
		return nil, err
	}
	_, err = c.Get(context.Background(), key(64)) // which attaches
	return &through{s, c}, err
}

// throughInitiator compares a hit through an initiator with one by a queue pair to the server.
func throughInitiator() harness.Benchmark {
	all := rig.Lazy(newThrough)
	return harness.Compare(harness.Figure{Name: "get_64B_dc", Unit: "us"}, instructions,
		all.Pass(func(p *through, ctx context.Context) (float64, error) { return p.gets(ctx, p.other, 64) }),
		harness.Side{Name: "by a queue pair", Run: all.Pass(func(p *through, ctx context.Context) (float64, error) {
			return p.gets(ctx, p.client, 64)
		})})
}
