package rdmacm

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

func TestOffer(t *testing.T) {
	o := verbs.Offer{Regions: []verbs.Region{{Addr: 1 << 60, Length: 4096, RKey: 7}, {Addr: 2, Length: 3, RKey: 1 << 31}}, Data: []byte("more")}
	b, err := encodeOffer(o, true, MaxRequestData)
	require.NoError(t, err)
	got, writes, err := decodeOffer(append(b, 0, 0, 0))
	require.NoError(t, err)
	require.Equal(t, o, got)
	require.True(t, writes)
	_, err = encodeOffer(o, true, len(b)-1)
	require.ErrorIs(t, err, verbs.ErrAttributes)
	for n := range b {
		_, _, err = decodeOffer(b[:n])
		require.ErrorIs(t, err, verbs.ErrMessage, "%d bytes", n)
	}
}

// Whatever a peer sends is an offer, of which the encoder makes the same, or
// refused.
func FuzzOffer(f *testing.F) {
	f.Add([]byte("GL\x01\x02aaaaaaaabbbbbbbbccccdd"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, writes, err := decodeOffer(b)
		if err != nil {
			require.ErrorIs(t, err, verbs.ErrMessage)
			return
		}
		again, err := encodeOffer(o, writes, len(b))
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(b, again))
	})
}
