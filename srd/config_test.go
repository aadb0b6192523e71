package srd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd/internal/engine"
)

// Each limit and time reaches the engine. What peers may have under way leaves a quarter of the
// receives free.
func TestEngineHasTheConfiguration(t *testing.T) {
	cfg := Config{Paths: 3, MaxPeers: 4, MaxMessage: 5, Receives: 80,
		MinTimeout: 7 * time.Second, AckDelay: 8 * time.Second, Target: 9 * time.Second, PeerTimeout: 10 * time.Second}
	require.Equal(t, engine.Config{Paths: 3, MaxPeers: 4, MaxMessage: 5, Budget: 60,
		MinTimeout: 7 * time.Second, AckDelay: 8 * time.Second, Target: 9 * time.Second, PeerTimeout: 10 * time.Second}, cfg.engine())
}
