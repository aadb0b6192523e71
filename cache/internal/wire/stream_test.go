package wire

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/internal/testseed"
)

// pieces gives a stream all bytes, and returns the messages that come out.
func pieces(s *Stream, all []byte, size func() int) (out [][]byte, err error) {
	most := len(all) / HeaderSize
	for len(all) > 0 {
		n := min(size(), len(all))
		copy(s.Room(n), all[:n])
		s.Arrived(n)
		all = all[n:]
		for {
			m, err := s.Next()
			if err != nil {
				return out, err
			}
			if m == nil {
				break
			}
			if len(out) == most {
				return out, errors.New("more messages than there are")
			}
			out = append(out, bytes.Clone(m))
		}
	}
	return out, nil
}

func TestStream(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	for range 100 {
		var all []byte
		var want [][]byte
		for range 20 {
			m := AppendRequest(nil, &Request{Request: kv.Request{Op: kv.OpSet, Key: []byte("k"), Value: make([]byte, rng.IntN(300))}})
			want, all = append(want, m), append(all, m...)
		}
		got, err := pieces(new(Stream), all, func() int { return 1 + rng.IntN(500) })
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestStreamRefuses(t *testing.T) {
	m := AppendHorizon(nil, &Horizon{1, 3, 2})
	whole := func() int { return 1 << 10 }
	got, err := pieces(&Stream{Limit: len(m)}, m, whole)
	require.NoError(t, err)
	require.Len(t, got, 1)
	_, err = pieces(&Stream{Limit: len(m) - 1}, m, whole)
	require.ErrorIs(t, err, Malformed)
	_, err = pieces(new(Stream), append(m, "what is no message"...), whole)
	require.ErrorIs(t, err, Malformed)
	got, err = pieces(new(Stream), m[:HeaderSize-1], whole)
	require.NoError(t, err)
	require.Empty(t, got)
}

// A stream keeps no more than what it is to hand out.
func TestStreamReusesItsRoom(t *testing.T) {
	m := AppendReply(nil, &Reply{Reply: kv.Reply{Status: kv.OK, Value: make([]byte, 100)}})
	var s Stream
	_, err := pieces(&s, bytes.Repeat(m, 1000), func() int { return 333 })
	require.NoError(t, err)
	require.Less(t, cap(s.b), 4<<10)
}

// Nor does it keep what a long message needed.
func TestStreamGivesRoomBack(t *testing.T) {
	const piece = 512
	long := AppendReply(nil, &Reply{Reply: kv.Reply{Status: kv.OK, Value: make([]byte, 1<<20)}})
	var s Stream
	got, err := pieces(&s, long, func() int { return piece })
	require.NoError(t, err)
	require.Equal(t, [][]byte{long}, got)
	s.Room(piece)
	require.LessOrEqual(t, cap(s.b), roomy*piece)
	before := &s.b[:1][0]
	s.Arrived(0)
	s.Room(piece)
	require.Same(t, before, &s.b[:1][0], "while that is enough it stays")
}

func FuzzStream(f *testing.F) {
	f.Add(AppendHorizon(nil, &Horizon{1, 3, 2}), 5)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		_, _ = pieces(new(Stream), b, func() int { return min(max(n, 1), 1<<12) })
	})
}

// Messages that are sent a part at a time stay whole.
func TestWhole(t *testing.T) {
	var b []byte
	var ends []int
	for n := range 5 {
		b = AppendRequest(b, &Request{Request: kv.Request{Op: kv.OpSet, Key: []byte("key"), Value: make([]byte, 100*n)}})
		ends = append(ends, len(b))
	}
	require.Zero(t, Whole(nil, 100))
	for n := 1; n <= len(b); n++ {
		at, _ := slices.BinarySearch(ends, n)
		require.Equal(t, ends[at], Whole(b, n), n)
	}
	require.Equal(t, len(b), Whole(b, len(b)+1))
	require.Equal(t, 3, Whole([]byte{1, 2, 3}, 1), "what is no message is not cut")
	require.Equal(t, len(b)-1, Whole(b[:len(b)-1], len(b)+1), "nor is a part of one")
}

// A stream in which nothing waits has no memory; one with a part of a message keeps it.
func TestStreamBorrows(t *testing.T) {
	var s Stream
	lent := 0
	lend := func() []byte { lent++; return make([]byte, 5, 64) }
	s.Borrow(lend)
	require.Equal(t, 1, lent)
	require.Equal(t, 64, cap(s.Room(16)))
	s.Borrow(lend)
	require.Equal(t, 1, lent, "it has some")
	req := AppendRequest(nil, &Request{Request: kv.Request{Op: kv.OpGet, Key: []byte("k")}})
	s.Arrived(copy(s.Room(len(req)), req[:20]))
	require.Nil(t, s.Return(), "more is to come")
	s.Arrived(copy(s.Room(len(req)), req[20:]))
	require.Nil(t, s.Return(), "nobody has taken it")
	b, err := s.Next()
	require.NoError(t, err)
	require.Equal(t, req, b)
	require.NotZero(t, cap(s.Return()))
	require.Nil(t, s.Return())
	s.Borrow(func() []byte { return nil })
	s.Arrived(copy(s.Room(len(req)), req))
	b, err = s.Next()
	require.NoError(t, err)
	require.Equal(t, req, b)
}

func TestHello(t *testing.T) {
	h := Hello{7, 8, 9, true, [SealSize]byte{1, 2, 31: 3}, []byte("endpoint")}
	b := AppendHello(nil, &h)
	got, err := ReadHello(b)
	require.NoError(t, err)
	require.Equal(t, h, got)
	for n := range b {
		_, err := ReadHello(b[:n])
		require.ErrorIs(t, err, Short)
	}
	_, err = ReadHello(append(bytes.Clone(b), 0))
	require.ErrorIs(t, err, Malformed)
	b[0] ^= 1
	_, err = ReadHello(b)
	require.ErrorIs(t, err, Malformed, "another version")
	_, err = ReadHello(AppendHello(nil, &Hello{Endpoint: make([]byte, maxEndpoint+1)}))
	require.ErrorIs(t, err, Malformed)
	odd := AppendHello(nil, &Hello{})
	for _, bit := range []byte{1, 4, 128} {
		odd[16] = bit
		_, err = ReadHello(odd)
		require.ErrorIs(t, err, Malformed, "a bit that means nothing")
	}
	for i, h := range []Hello{{}, {Beats: true}} {
		h.Endpoint = []byte{}
		got, err := ReadHello(AppendHello(nil, &h))
		require.NoError(t, err)
		require.Equal(t, h, got, i)
	}
}

func FuzzHello(f *testing.F) {
	f.Add(AppendHello(nil, &Hello{7, 8, 9, true, [SealSize]byte{1, 2, 31: 3}, []byte("endpoint")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := ReadHello(b); err == nil {
			require.Equal(t, b, AppendHello(nil, &h))
		}
	})
}
