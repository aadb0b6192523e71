package lockoffload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRecord(t *testing.T) {
	buf := make([]byte, 100)
	n := encode(buf, 7, []byte("hello"))
	v, data, err := decode(buf)
	require.NoError(t, err)
	require.Equal(t, uint64(7), v)
	require.Equal(t, "hello", string(data))
	for i := range n * 8 { // no flipped bit passes
		buf[i/8] ^= 1 << (i % 8)
		_, _, err := decode(buf)
		require.ErrorIs(t, err, ErrRecord, "bit %d", i)
		buf[i/8] ^= 1 << (i % 8)
	}
	_, _, err = decode(make([]byte, 100))
	require.ErrorIs(t, err, ErrRecord, "memory that was never laid out")
	_, _, err = decode(nil)
	require.ErrorIs(t, err, ErrRecord)
}

func TestBackoff(t *testing.T) {
	b := backoff{min: time.Millisecond, max: 4 * time.Millisecond}
	for range 8 * backoffWindow {
		b.note(true)
	}
	require.Equal(t, b.max, b.pause)
	for range 8 * backoffWindow {
		b.note(false)
	}
	require.Equal(t, b.min, b.pause)
}
