package netpath

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNeighbourStates(t *testing.T) {
	for s, name := range map[NeighbourState]string{
		NeighbourNone: "none", NeighbourIncomplete: "incomplete", NeighbourReachable: "reachable", NeighbourStale: "stale",
		NeighbourDelay: "delay", NeighbourProbe: "probe", NeighbourFailed: "failed", NeighbourNoARP: "noarp",
		NeighbourPermanent: "permanent", 0x300: "NeighbourState(0x300)",
	} {
		require.Equal(t, name, s.String())
	}
	require.False(t, NeighbourNone.known() || NeighbourIncomplete.known() || NeighbourFailed.known())
	require.True(t, NeighbourStale.known() && NeighbourPermanent.known() && NeighbourNoARP.known())
}
