package dc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// TestComesFrom: the source that a message names must be the network's.
func TestComesFrom(t *testing.T) {
	v4 := wire.ControlAddress{GID: wire.GID{10: 0xff, 11: 0xff, 12: 10, 13: 77, 15: 1}}
	v6 := wire.ControlAddress{GID: wire.GID{0: 0xfe, 1: 0x80, 15: 9}}
	packet := make([]byte, routeHeader)
	packet[20] = 0x45
	copy(packet[32:], v4.GID[12:])
	require.True(t, comesFrom(packet, true, 0, &v4))
	require.False(t, comesFrom(packet, true, 0, &v6))
	other := v4
	other.GID[15]++
	require.False(t, comesFrom(packet, true, 0, &other))
	clear(packet)
	require.False(t, comesFrom(packet, true, 0, &v4), "no header of IPv4")
	packet[0] = 0x60
	copy(packet[8:], v6.GID[:])
	require.True(t, comesFrom(packet, true, 0, &v6))
	other = v6
	other.GID[1]++
	require.False(t, comesFrom(packet, true, 0, &other))
	require.False(t, comesFrom(packet, true, 0, &v4))
	local := wire.ControlAddress{LID: 7}
	require.True(t, comesFrom(packet, false, 7, &local), "InfiniBand, within a subnet")
	require.False(t, comesFrom(packet, false, 8, &local))
}
