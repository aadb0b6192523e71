package wire

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs/rdmacm"
)

func TestHello(t *testing.T) {
	h := Hello{Addr: 1 << 40, Size: 1 << 20, RKey: 0xabcdef, Messages: 128}
	b := h.Encode()
	require.Len(t, b, HelloLen)
	require.LessOrEqual(t, len(b), rdmacm.MaxRequestData)
	got, err := Decode(append(b, make([]byte, rdmacm.MaxAcceptData-HelloLen)...))
	require.NoError(t, err)
	require.Equal(t, h, got)
	for _, i := range []int{0, 4, 5, 6, 8} {
		bad := bytes.Clone(b)
		bad[i] ^= 0xff
		_, err := Decode(bad)
		require.ErrorAs(t, err, new(Violation), "byte %d", i)
	}
	_, err = Decode(nil)
	require.ErrorAs(t, err, new(Violation))
	_, err = Decode(append(b, 0, 0, 1))
	require.ErrorAs(t, err, new(Violation))
}

func FuzzHello(f *testing.F) {
	h := Hello{Addr: 1 << 40, Size: 1 << 20, RKey: 7, Messages: 128}
	f.Add(h.Encode())
	f.Add(append(h.Encode(), make([]byte, 32)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Decode(b)
		if err != nil {
			require.ErrorAs(t, err, new(Violation))
			return
		}
		require.Equal(t, b[:HelloLen], h.Encode())
	})
}
