package wire

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"
)

func someAddress() Address {
	return Address{GID: GID{10: 0xff, 11: 0xff, 12: 10, 13: 77, 15: 1}, MTU: 5, QPN: 0x123456, QKey: 7, Generation: 9}
}

func someMessage() Message {
	return Message{Kind: Connect, MTU: 3, Epoch: 1, Sender: 2, Session: 3, Context: 4, Attempt: 5, Peer: 6, QPN: 7, PSN: 8, Wait: 9, Key: 10,
		From: ControlAddress{QPN: 11, QKey: 12, LID: 13}, Reply: [AddressLen]byte{14}}
}

// TestForms: what was stored or sent stays readable.
func TestForms(t *testing.T) {
	a := someAddress()
	a.LID, a.Service = 0x0a0b, 0x1f90
	require.Equal(t, "475644410200050000000000000000000000ffff0a4d00010a0b1f900012345600000007000000000000000900000000c5fb9ffd", hex.EncodeToString(a.Append(nil)))
	m := someMessage()
	var b [MessageLen]byte
	require.Equal(t, MessageLen, m.Encode(b[:]))
	require.Equal(t, "4756444303010003", hex.EncodeToString(b[:8]))
	require.Len(t, b, 148)
}

func TestAddressIsChecked(t *testing.T) {
	a := someAddress()
	a.KeyCheck = KeyCheckOf(77)
	b := a.Append(nil)
	require.Len(t, b, AddressLen)
	var got Address
	require.NoError(t, got.Decode(b))
	require.Equal(t, a, got)
	for i := range b {
		bad := append([]byte(nil), b...)
		bad[i] ^= 4
		require.ErrorIs(t, got.Decode(bad), ErrAddress, "byte %d", i)
	}
	require.ErrorIs(t, got.Decode(b[:10]), ErrAddress)
}

func TestKeyCheck(t *testing.T) {
	seen := map[uint16]bool{}
	for key := range uint64(1000) {
		seen[KeyCheckOf(key)] = true
	}
	require.NotContains(t, seen, uint16(0))
	require.Greater(t, len(seen), 950)
}

// TestMessageIsChecked: a flipped bit anywhere is seen.
func TestMessageIsChecked(t *testing.T) {
	m := someMessage()
	var b [MessageLen]byte
	m.Encode(b[:])
	var got Message
	require.True(t, got.Decode(b[:]))
	require.Equal(t, m, got)
	for i := range b {
		bad := b
		bad[i] ^= 0x10
		require.False(t, got.Decode(bad[:]), "byte %d", i)
	}
	require.False(t, got.Decode(b[:MessageLen-1]))
}

// FuzzAddress: whatever is decoded encodes to the same bytes.
func FuzzAddress(f *testing.F) {
	a := someAddress()
	f.Add(a.Append(nil))
	a.Service, a.KeyCheck = 7472, 5
	f.Add(a.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a Address
		if a.Decode(b) == nil {
			require.Equal(t, b, a.Append(nil))
		}
	})
}

func FuzzMessage(f *testing.F) {
	m := someMessage()
	var b [MessageLen]byte
	m.Encode(b[:])
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Message
		if m.Decode(b) {
			var again [MessageLen]byte
			m.Encode(again[:])
			require.Equal(t, b, again[:])
		}
	})
}

// TestOtherVersions are refused, whole as they are: an address with the reason, a message
// without one.
func TestOtherVersions(t *testing.T) {
	a, m := someAddress(), someMessage()
	var message [MessageLen]byte
	m.Encode(message[:])
	for _, by := range []int{-1, 1} {
		b := a.Append(nil)
		b[4] += byte(by)
		binary.BigEndian.PutUint32(b[AddressLen-4:], crc32.Checksum(b[:AddressLen-4], castagnoli))
		var got Address
		err := got.Decode(b)
		require.ErrorIs(t, err, ErrAddress)
		require.ErrorContains(t, err, "version")
		b = append([]byte(nil), message[:]...)
		b[4] += byte(by)
		binary.BigEndian.PutUint32(b[checksumAt:], crc32.Checksum(b[:checksumAt], castagnoli))
		require.False(t, new(Message).Decode(b))
	}
}
