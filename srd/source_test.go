package srd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The sender is that of the header which arrived, whatever an earlier datagram left in the
// memory before it.
func TestSourceOf(t *testing.T) {
	v6 := []byte{0x60, 0, 0, 0, 0, 0, 17, 64,
		0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x45, 0, 0, 9,
		0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}
	v4 := []byte{0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 17, 0x26, 0x15, 10, 77, 0, 2, 10, 77, 0, 1}
	from4 := [16]byte{10: 0xff, 11: 0xff, 12: 10, 13: 77, 14: 0, 15: 2}

	header := make([]byte, 40)
	copy(header[20:], v4)
	require.Equal(t, from4, sourceOf(header), "the rest is 0")
	copy(header, v6[:20])
	require.Equal(t, from4, sourceOf(header), "the rest is of a datagram over IPv6")
	copy(header, v6)
	require.Equal(t, [16]byte(v6[8:24]), sourceOf(header), "an IPv6 address that looks like the begin of IPv4")

	// Soft-RoCE has no checksum in what a device sends to itself, and 0 in the rest.
	header = make([]byte, 40)
	copy(header[20:], v4)
	header[30], header[31] = 0, 0
	require.Equal(t, from4, sourceOf(header))
}
