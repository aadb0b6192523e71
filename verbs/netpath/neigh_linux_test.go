package netpath

import (
	"net/netip"
	"testing"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func neighMessage(t testing.TB) []byte {
	t.Helper()
	b, err := (&rtnetlink.NeighMessage{Family: unix.AF_INET, Index: 3, State: uint16(NeighbourStale), Attributes: &rtnetlink.NeighAttributes{
		Address: []byte{10, 0, 0, 2}, LLAddress: []byte{2, 0, 0, 0, 0, 1}}}).MarshalBinary()
	require.NoError(t, err)
	return b
}

func TestNeighbourOf(t *testing.T) {
	mac, state, err := neighbourOf(neighMessage(t))
	require.NoError(t, err)
	require.Equal(t, "02:00:00:00:00:01", mac.String())
	require.Equal(t, NeighbourStale, state)
	mac, _, err = neighbourOf(neighMessage(t)[:unix.SizeofNdMsg])
	require.NoError(t, err)
	require.Empty(t, mac)
	_, _, err = neighbourOf(nil)
	require.Error(t, err)

	b, err := neighbourRequest(7, netip.MustParseAddr("fe80::1%eth0"))
	require.NoError(t, err)
	require.Equal(t, []byte{unix.AF_INET6, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 20, 0, unix.NDA_DST, 0, 0xfe, 0x80}, b[:18])
	require.Len(t, b, 32)
}

// FuzzNeighbour: a neighbour or an error.
func FuzzNeighbour(f *testing.F) {
	f.Add(neighMessage(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		if mac, _, err := neighbourOf(b); err != nil && mac != nil {
			t.Fatalf("%v and %v", mac, err)
		}
	})
}
