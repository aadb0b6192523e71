package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

func simple(paths int) Config {
	return Config{Paths: paths, MTU: 1024, MinTimeout: time.Millisecond, AckDelay: 100 * time.Microsecond, Target: time.Millisecond, PeerTimeout: time.Second}
}

// A message arrives, whatever its length, by every service that carries it.
func TestMessages(t *testing.T) {
	for _, key := range []*wire.Key{nil, {1, 2}} {
		for service := range uint8(wire.Services) {
			for _, size := range []int{8, 500, 700, 5000, 300000} {
				if size > 800 && (service == Unreliable || service == Idempotent) {
					continue
				}
				cfg := simple(4)
				cfg.Key = key
				w := newWorld(t, 1, 2, cfg)
				l := w.model.post(w.nodes[0], 1, service, 2, size)
				w.nodes[0].pump()
				w.run(100 * time.Millisecond)
				require.Equal(t, 1, l.count, "service %d, %d bytes", service, size)
				want := Delivered
				if service == Unreliable {
					want = Sent
				}
				require.Equal(t, want, l.status, "service %d, %d bytes", service, size)
				w.model.end()
			}
		}
	}
}
