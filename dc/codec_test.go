package dc

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

func someAddress() Address {
	return Address{GID: verbs.GID{10: 0xff, 11: 0xff, 12: 10, 13: 77, 15: 1}, MTU: verbs.MTU4096, QPN: 0x123456, QKey: 7, Incarnation: 9}
}

// TestAddressForm: addresses that were stored or sent stay readable.
func TestAddressForm(t *testing.T) {
	a := someAddress()
	a.LID, a.Service = 0x0a0b, 0x1f90
	b, err := a.MarshalBinary()
	require.NoError(t, err)
	require.Equal(t, "475644410200050000000000000000000000ffff0a4d00010a0b1f900012345600000007000000000000000900000000c5fb9ffd", hex.EncodeToString(b))
}

func TestAddressIsSmallAndChecked(t *testing.T) {
	a := someAddress()
	b, err := a.MarshalBinary()
	require.NoError(t, err)
	require.Len(t, b, addressLen)
	var got Address
	require.NoError(t, got.UnmarshalBinary(b))
	require.Equal(t, a, got)
	for i := range b {
		bad := append([]byte(nil), b...)
		bad[i] ^= 4
		require.ErrorIs(t, got.UnmarshalBinary(bad), ErrAddress, "byte %d", i)
	}
	require.ErrorIs(t, got.UnmarshalBinary(b[:10]), ErrAddress)
}

// Whatever is decoded encodes to the same bytes: there is one form of each.
func FuzzAddress(f *testing.F) {
	a := someAddress()
	b, _ := a.MarshalBinary()
	f.Add(b)
	a.Service = 7472
	b, _ = a.MarshalBinary()
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var a Address
		if a.UnmarshalBinary(b) != nil {
			return
		}
		again, err := a.MarshalBinary()
		require.NoError(t, err)
		require.Equal(t, b, again)
	})
}

func FuzzMessage(f *testing.F) {
	m := message{kind: msgConnect, mtu: verbs.MTU1024, epoch: 1, sender: 2, session: 3, context: 4, attempt: 5, peer: 6, qpn: 7, psn: 8, wait: 9, key: 10, from: place{qpn: 11, qkey: 12, lid: 13}}
	var b [messageLen]byte
	m.encode(b[:])
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		var m message
		if !m.decode(b) {
			return
		}
		var again [messageLen]byte
		m.encode(again[:])
		require.Equal(t, b, again[:])
	})
}
