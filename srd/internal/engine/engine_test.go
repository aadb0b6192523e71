package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/session"
	"github.com/goverbs/goverbs/srd/internal/wire"
)

func simple(paths int) Config {
	return Config{Config: session.Config{MTU: 1024, AckDelay: 100 * time.Microsecond, PeerTimeout: time.Second}, Paths: paths, MinTimeout: time.Millisecond, Target: time.Millisecond}
}

// A message arrives, whatever its length, by every service.
func TestMessages(t *testing.T) {
	for _, key := range []*wire.Key{nil, {1, 2}} {
		for service := range uint8(wire.Services) {
			for _, size := range []int{8, 500, 700, 5000, 300000} {
				cfg := simple(4)
				cfg.Key = key
				w := newWorld(t, 1, 2, cfg)
				l := w.model.post(w.nodes[0], 1, service, size)
				w.nodes[0].pump()
				w.run(100 * time.Millisecond)
				require.Equal(t, 1, l.count, "service %d, %d bytes", service, size)
				require.Equal(t, Delivered, l.status, "service %d, %d bytes", service, size)
				w.model.end()
			}
		}
	}
}

// The shortest times that an endpoint can be told stop nothing: each message has a status.
func TestShortestTimes(t *testing.T) {
	for i := range 5 {
		cfg := simple(2)
		times := []*time.Duration{&cfg.MinTimeout, &cfg.AckDelay, &cfg.Target, &cfg.PeerTimeout}
		for j, d := range times {
			if i == j || i == len(times) {
				*d = []time.Duration{1, 1, 1, time.Microsecond}[j]
			}
		}
		w := newWorld(t, 1, 2, cfg)
		for range 20 {
			w.model.post(w.nodes[0], 1, Reliable, 5000)
			w.nodes[0].pump()
			w.run(w.now + time.Millisecond)
		}
		w.run(w.now + 5*time.Second)
		require.Zero(t, w.model.open)
	}
}
