package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"strings"
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
	a.Hardware, a.KeyCheck = true, 0xabcd
	require.Equal(t, "475644410201050000000000000000000000ffff0a4d00010a0b1f9000123456000000070000000000000009abcd000009cf7c3c", hex.EncodeToString(a.Append(nil)))
	m := someMessage()
	m.Kind, m.Reason, m.MTU, m.From.GID = KeepAlive, Broken, 5, a.GID
	b := bytes.Repeat([]byte{0xff}, MessageLen) // memory that had something else
	require.Equal(t, MessageLen, m.Encode(b))
	require.Equal(t, "4756444303020405"+"0000000000000001"+"0000000000000002"+"0000000000000003"+
		"00000004"+"00000005"+"00000006"+"00000007"+"00000008"+"00000009"+"000000000000000a"+
		"00000000000000000000ffff0a4d0001"+"0000000b"+"0000000c"+"000d"+"0000"+"0e"+strings.Repeat("00", AddressLen-1)+"0f8d3f6a", hex.EncodeToString(b))
	require.Equal(t, []uint16{0x0707, 0xa83b}, []uint16{KeyCheckOf(0), KeyCheckOf(77)})
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

// sealed is a message or an address with a byte changed and the right checksum.
func sealed(b []byte, at int, value byte) []byte {
	b = bytes.Clone(b)
	b[at] = value
	binary.BigEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
	return b
}

// TestAddressValues: each field of an address has its range, whole as the address is.
func TestAddressValues(t *testing.T) {
	a := someAddress()
	whole := a.Append(nil)
	for _, v := range []struct {
		name  string
		at    int
		value byte
		ok    bool
	}{
		{"magic", 0, 'g', false}, {"magic", 3, 'C', false}, {"version", 4, 1, false}, {"version", 4, 3, false},
		{"no hardware", 5, 0, true}, {"hardware", 5, 1, true}, {"hardware", 5, 2, false},
		{"MTU", 6, 0, false}, {"MTU", 6, 1, true}, {"MTU", 6, 5, true}, {"MTU", 6, 6, false},
		{"reserved", 7, 1, false}, {"QPN", 28, 1, false}, {"QPN", 29, 255, true}, {"reserved", 46, 1, false}, {"reserved", 47, 1, false},
	} {
		var got Address
		err := got.Decode(sealed(whole, v.at, v.value))
		if v.ok {
			require.NoError(t, err, "%s %d", v.name, v.value)
			require.Equal(t, sealed(whole, v.at, v.value), got.Append(nil))
			continue
		}
		require.ErrorIs(t, err, ErrAddress, "%s %d", v.name, v.value)
		require.Zero(t, got)
		if v.name == "version" {
			require.ErrorContains(t, err, "version", "so that its reader knows the reason")
		}
	}
	require.ErrorIs(t, new(Address).Decode(append(whole, 0)), ErrAddress)
}

// TestMessageValues: each field of a message has its range, whole as the message is.
func TestMessageValues(t *testing.T) {
	m := someMessage()
	var whole [MessageLen]byte
	m.Encode(whole[:])
	for _, v := range []struct {
		name  string
		at    int
		value byte
		ok    bool
	}{
		{"magic", 0, 'g', false}, {"magic", 3, 'A', false}, {"version", 4, 2, false}, {"version", 4, 4, false},
		{"kind", 5, 0, false}, {"kind", 5, byte(Connect), true}, {"kind", 5, byte(Alive), true}, {"kind", 5, byte(Alive) + 1, false},
		{"reason", 6, 0, true}, {"reason", 6, byte(Broken), true}, {"reason", 6, byte(Broken) + 1, false},
		{"MTU", 7, 0, false}, {"MTU", 7, 1, true}, {"MTU", 7, 5, true}, {"MTU", 7, 6, false},
		{"QPN", 44, 1, false}, {"QPN", 45, 255, true}, {"PSN", 48, 1, false}, {"PSN", 49, 255, true},
		{"control QPN", 80, 1, false}, {"control QPN", 81, 255, true}, {"reserved", 90, 1, false}, {"reserved", 91, 1, false},
	} {
		var got Message
		b := sealed(whole[:], v.at, v.value)
		require.Equal(t, v.ok, got.Decode(b), "%s %d", v.name, v.value)
		if !v.ok {
			require.Zero(t, got)
			continue
		}
		var again [MessageLen]byte
		got.Encode(again[:])
		require.Equal(t, b, again[:], "%s %d", v.name, v.value)
	}
	require.False(t, new(Message).Decode(append(whole[:], 0)))
}

// TestMTUs: a code is one of five powers of two.
func TestMTUs(t *testing.T) {
	for m, n := range []int{0, 256, 512, 1024, 2048, 4096, 0, 255: 0} {
		require.Equal(t, n, MTU(m).Bytes(), "code %d", m)
	}
}
