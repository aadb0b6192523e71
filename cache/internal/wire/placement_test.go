package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlacement(t *testing.T) {
	b := AppendPlacement(nil, 7, []byte("placement"))
	h, err := ReadHeader(b)
	require.NoError(t, err)
	require.Equal(t, Header{KindPlacement, 7, len(b)}, h)
	p, err := ReadPlacement(b)
	require.NoError(t, err)
	require.Equal(t, "placement", string(p))
	_, err = ReadPlacement(b[:len(b)-1])
	require.ErrorIs(t, err, Short)
	_, err = ReadPlacement(AppendBye(nil, 7))
	require.ErrorIs(t, err, Malformed)
}

func TestListed(t *testing.T) {
	all := []Listed{{Key: []byte("a"), CAS: 5, Left: 6, Attrs: AttrStale | AttrWon, Fetched: true}, {Key: make([]byte, MaxKey)}}
	var b []byte
	for i := range all {
		b = AppendListed(b, &all[i])
	}
	rest := b
	for i := range all {
		var l Listed
		var err error
		l, rest, err = ReadListed(rest)
		require.NoError(t, err)
		require.Equal(t, all[i], l)
	}
	require.Empty(t, rest)
	first := b[:listedFixed+1]
	for n := range len(first) {
		_, _, err := ReadListed(first[:n])
		require.ErrorIs(t, err, Malformed)
	}
	for at, v := range map[int]byte{0: 0, 1: 1, 2: 0xff, 4: 2} {
		wrong := append([]byte(nil), b...)
		wrong[at] = v
		_, _, err := ReadListed(wrong)
		require.ErrorIs(t, err, Malformed, "byte %d", at)
	}
}

func FuzzListed(f *testing.F) {
	f.Add(AppendListed(nil, &Listed{Key: []byte("a"), CAS: 5, Left: 6, Attrs: AttrWon, Fetched: true}))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, rest, err := ReadListed(b)
		if err == nil {
			require.Equal(t, b, append(AppendListed(nil, &l), rest...))
		}
	})
}
