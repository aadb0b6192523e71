package snapshot

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

var head = Head{Epoch: 7, Saved: 1_700_000_000_000, CAS: 99, FlushIn: 5}

var items = []Item{
	{Key: []byte("a"), Value: []byte("value"), Flags: 5, CAS: 3, Left: 1000, Fetched: true},
	{Key: []byte{}, Value: []byte{}, Attrs: wire.AttrStale | wire.AttrWon},
	{Key: bytes.Repeat([]byte("k"), wire.MaxKey), Value: bytes.Repeat([]byte("v"), 3<<20), Attrs: wire.AttrBinaryKey, CAS: 1<<64 - 1},
}

func write(t testing.TB, h Head, items []Item) []byte {
	var b bytes.Buffer
	w, err := NewWriter(&b, &h)
	require.NoError(t, err)
	for i := range items {
		require.NoError(t, w.Put(&items[i]))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func read(src io.Reader) (h Head, items []Item, err error) {
	r, h, err := NewReader(src)
	if err != nil {
		return h, nil, err
	}
	for {
		var it Item
		if err := r.Next(&it); errors.Is(err, io.EOF) {
			return h, items, nil
		} else if err != nil {
			return h, items, err
		}
		it.Key, it.Value = bytes.Clone(it.Key), bytes.Clone(it.Value)
		items = append(items, it)
	}
}

func TestSnapshot(t *testing.T) {
	b := write(t, head, items)
	for _, r := range []io.Reader{bytes.NewReader(b), iotest.HalfReader(bytes.NewReader(b))} {
		h, got, err := read(r)
		require.NoError(t, err)
		require.Equal(t, head, h)
		require.Equal(t, items, got)
	}
	_, got, err := read(bytes.NewReader(write(t, Head{}, nil)))
	require.NoError(t, err)
	require.Empty(t, got)
}

// Whatever is missing or changed, the file is refused.
func TestDamage(t *testing.T) {
	b := write(t, head, items[:2])
	for n := range b {
		_, _, err := read(bytes.NewReader(b[:n]))
		require.ErrorIs(t, err, ErrDamaged, "cut off at %d of %d", n, len(b))
		for bit := range 8 {
			c := bytes.Clone(b)
			c[n] ^= 1 << bit
			_, _, err = read(bytes.NewReader(c))
			require.Error(t, err, "bit %d of byte %d", bit, n)
		}
	}
	_, _, err := read(bytes.NewReader(append(bytes.Clone(b), 0)))
	require.ErrorIs(t, err, ErrDamaged)
	b[8]++
	_, _, err = read(bytes.NewReader(b))
	require.ErrorIs(t, err, ErrOtherFormat)
}

// A record that is missing with all its bytes is missed.
func TestMissingRecord(t *testing.T) {
	two, one := write(t, head, items[:2]), write(t, head, items[:1])
	gone := append(bytes.Clone(one[:len(one)-itemSize]), two[len(two)-itemSize:]...)
	_, _, err := read(bytes.NewReader(gone))
	require.ErrorIs(t, err, ErrDamaged)
}

// What cannot be a record is none, though its checksum is right.
func TestRefuses(t *testing.T) {
	for name, it := range map[string]struct {
		key, value  int
		attrs       uint16
		flags, bits uint32
	}{
		"a long key":   {key: wire.MaxKey + 1},
		"a long value": {value: wire.MaxValue + 1},
		"attributes":   {attrs: 1 << 15},
		"bits":         {bits: 2},
		"an odd end":   {key: theEnd, flags: 1},
	} {
		var b bytes.Buffer
		w, err := NewWriter(&b, &head)
		require.NoError(t, err)
		require.NoError(t, w.head(it.key, it.attrs, it.value, it.flags, it.bits, 0, 0))
		if it.key != theEnd {
			w.n, w.b = 1, make([]byte, it.key+it.value)
			require.NoError(t, w.sum())
			require.NoError(t, w.Close())
		}
		require.NoError(t, w.w.Flush())
		_, _, err = read(&b)
		require.ErrorIs(t, err, ErrDamaged, name)
		require.NotContains(t, err.Error(), "cut off", name)
	}
	var b bytes.Buffer
	w, err := NewWriter(&b, &head)
	require.NoError(t, err)
	require.Error(t, w.Put(&Item{Key: make([]byte, wire.MaxKey+1)}))
}

// What a disk says is passed on, and not taken for damage.
func TestErrors(t *testing.T) {
	broken := errors.New("broken")
	b := write(t, head, items[:1])
	_, _, err := read(io.MultiReader(bytes.NewReader(b[:60]), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
	require.NotErrorIs(t, err, ErrDamaged)
	_, _, err = read(io.MultiReader(bytes.NewReader(b), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
}

// Nothing panics, and what is read is written the same again.
func FuzzSnapshot(f *testing.F) {
	f.Add(write(f, head, items[:2]))
	f.Add(write(f, Head{}, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, items, err := read(bytes.NewReader(b)); err == nil {
			require.Equal(t, b, write(t, h, items))
		}
	})
}
