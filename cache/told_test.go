package cache

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/internal/wiretest"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/verbs"
)

// hears is a server's end that keeps what kinds of messages a client sends.
type hears struct {
	say chan []byte // to the client

	mu    sync.Mutex
	full  bool // nothing can be posted
	heard []wire.Kind
	quiet []uint64 // of the horizons among them
}

func (h *hears) Post(ctx context.Context, b []byte) (bool, error) {
	if h.full {
		return false, nil
	}
	return true, h.Write(ctx, b)
}

func (h *hears) Write(_ context.Context, b []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return wiretest.Each(b, func(kind wire.Kind, m []byte) error {
		if kind == wire.KindHorizon {
			said, err := wire.ReadHorizon(m)
			if err != nil {
				return err
			}
			h.quiet = append(h.quiet, said.Quiet)
		}
		h.heard = append(h.heard, kind)
		return nil
	})
}

func (h *hears) Next(ctx context.Context) ([]byte, error) {
	select {
	case b := <-h.say:
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A client that is told of changes says with its next call that it has left them behind, or when it is asked, and
// not by a message of its own before that.
func TestClientSaysHowFarItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hears{say: make(chan []byte)}
		s := newNarrowSession(t, nil)
		s.conn, s.first = h, make(chan struct{})
		s.run()
		heard := func(b []byte) []wire.Kind {
			if b != nil {
				h.say <- b
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			h.mu.Lock()
			defer h.mu.Unlock()
			all := h.heard
			h.heard = nil
			return all
		}
		seq := uint64(0)
		change := func() []byte {
			seq++
			e := wire.Entry{Fingerprint: seq, Version: seq, Epoch: 1}
			return wire.AppendDeltas(nil, &wire.Deltas{Epoch: 1, First: seq, Clock: seq, List: []wire.Delta{{Change: wire.ChangePut, Entry: e}}})
		}
		ask := func() []byte {
			return wire.AppendDeltas(nil, &wire.Deltas{Epoch: 1, First: seq + 1, Clock: seq})
		}
		require.Empty(t, heard(wire.AppendMap(nil, &wire.Map{Epoch: 1})))
		require.Empty(t, heard(change()), "nothing yet")
		require.Equal(t, []wire.Kind{wire.KindHorizon}, heard(ask()))
		require.Empty(t, heard(ask()), "there is nothing new")
		s.mu.Lock()
		section, ok := s.enter() // a READ is under way, which ends soon after the server has asked
		s.mu.Unlock()
		require.True(t, ok)
		require.Empty(t, heard(change()))
		time.AfterFunc(again/2, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.leave(section)
		})
		require.Equal(t, []wire.Kind{wire.KindHorizon, wire.KindHorizon}, heard(ask()))
		require.Equal(t, seq, s.said.Quiet)
		require.Empty(t, heard(ask()))
		require.Empty(t, heard(change()))
		c, err := s.start(t.Context(), &wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte("key")}})
		require.NoError(t, err)
		require.Equal(t, []wire.Kind{wire.KindHorizon, wire.KindRequest}, heard(wire.AppendReply(nil, &wire.Reply{ID: c.id, Epoch: 1, Reply: kv.Reply{Status: kv.OK}})))
		_, err = s.wait(t.Context(), c)
		require.NoError(t, err)
		s.end(ErrClosed)
		s.running.Wait()
	})
}

// A client tells the server that it wants no map, or one in any case. One that has none says how far it is each time
// that the server says so, though there is no change.
func TestClientWithoutAMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, all := range map[wire.Mode][]Config{
			wire.Advised: {{}}, wire.Probed: {{MapBytes: -1}}, wire.Streamed: {{NearBytes: 1}},
			wire.Bounded: {{MapBytes: 1}, {MapBytes: 1, NearBytes: 1}},
		} {
			for _, cfg := range all {
				require.Equal(t, want, cfg.mode())
			}
		}
		_, err := newClient("nobody", Config{MapBytes: -1, NearBytes: 1})
		require.ErrorIs(t, err, verbs.ErrAttributes)
		h := &hears{say: make(chan []byte)}
		s := newNarrowSession(t, nil)
		s.c.cfg.MapBytes = -1
		s.conn, s.first = h, make(chan struct{})
		s.run()
		heard := func(m *wire.Map) []wire.Kind {
			if m != nil {
				h.say <- wire.AppendMap(nil, m)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			h.mu.Lock()
			defer h.mu.Unlock()
			all := h.heard
			h.heard = nil
			return all
		}
		require.Equal(t, []wire.Kind{wire.KindMode}, heard(nil))
		require.Equal(t, []wire.Kind{wire.KindHorizon}, heard(&wire.Map{Epoch: 1, Seq: 5, Alone: true}))
		require.True(t, s.m.Alone())
		s.mu.Lock()
		section, ok := s.enter() // a READ is under way, which ends soon after the server has asked
		s.mu.Unlock()
		require.True(t, ok)
		time.AfterFunc(again/2, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.leave(section)
		})
		require.Equal(t, []wire.Kind{wire.KindHorizon, wire.KindHorizon}, heard(&wire.Map{Epoch: 1, Seq: 7, Alone: true}))
		require.Equal(t, wire.Horizon{Epoch: 1, Applied: 7, Quiet: 7}, s.said)
		require.Empty(t, heard(&wire.Map{Epoch: 1, Seq: 7}))
		require.False(t, s.m.Alone())
		s.end(ErrClosed)
		s.running.Wait()

		s = newNarrowSession(t, nil)
		s.by, s.conn = TCP, h
		s.c.cfg.MapBytes = -1
		s.run()
		require.Empty(t, heard(nil), "by TCP there is nothing to choose")
		s.end(ErrClosed)
		s.running.Wait()
	})
}

// A horizon that could not be posted is sent before later ones: a server refuses one that goes back.
func TestClientDoesNotGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hears{say: make(chan []byte), full: true}
		s := newNarrowSession(t, nil)
		s.conn, s.first = h, make(chan struct{})
		s.running.Go(func() { s.end(s.receive()) })
		h.say <- wire.AppendMap(nil, &wire.Map{Epoch: 1})
		for seq := range uint64(2) {
			e := wire.Entry{Fingerprint: seq, Version: seq + 1, Epoch: 1}
			h.say <- wire.AppendDeltas(nil, &wire.Deltas{Epoch: 1, First: seq + 1, Clock: 1, List: []wire.Delta{{Change: wire.ChangePut, Entry: e}}})
			synctest.Wait()
			if seq == 0 {
				_, err := s.start(t.Context(), &wire.Request{Request: kv.Request{Op: kv.OpDelete, Key: []byte("key")}})
				require.NoError(t, err)
			}
		}
		s.running.Go(func() { s.end(s.send()) })
		synctest.Wait()
		require.Equal(t, []uint64{1, 2}, h.quiet)
		s.end(ErrClosed)
		s.running.Wait()
	})
}

// A client that is told that there is no memory may be the one that holds it up: it says how far it is, at once. And a
// session is one with one life of the server.
func TestClientHearsOddThings(t *testing.T) {
	s := newNarrowSession(t, nil)
	s.first = make(chan struct{})
	require.NoError(t, s.begin(wire.AppendMap(nil, &wire.Map{Epoch: 1})))
	s.calls[7] = &call{id: 7, done: make(chan error, 1)}
	require.NoError(t, s.replied(wire.AppendReply(nil, &wire.Reply{ID: 7, Epoch: 1, Reply: kv.Reply{Status: kv.NoMemory}})))
	require.True(t, s.tell)
	require.Len(t, s.wake, 1)
	require.NoError(t, s.begin(wire.AppendMap(nil, &wire.Map{Epoch: 1, Seq: 5})))
	require.ErrorIs(t, s.begin(wire.AppendMap(nil, &wire.Map{Epoch: 2})), wire.OtherEpoch)
}

// A value that is longer than the server takes is not sent.
func TestClientSendsNoValueThatIsTooLong(t *testing.T) {
	s := newNarrowSession(t, &narrow{replies: make(chan []byte, 8)})
	s.first = make(chan struct{})
	set := func(n int) error {
		_, err := s.start(t.Context(), &wire.Request{Request: kv.Request{Op: kv.OpSet, Key: []byte("k"), Value: make([]byte, n)}})
		return err
	}
	require.NoError(t, set(100), "the server has not said")
	require.NoError(t, s.begin(wire.AppendMap(nil, &wire.Map{Epoch: 1, Longest: 10})))
	require.NoError(t, set(10))
	require.ErrorIs(t, set(11), ErrTooLarge)
	require.Len(t, s.calls, 2)

	puts := []Entry{{Key: []byte("a"), Item: Item{Value: make([]byte, 11)}}, {Key: []byte("b")}}
	ended, end := context.WithCancel(t.Context())
	end()
	errs := []error{errPending, errPending}
	require.NoError(t, s.setMulti(ended, puts, errs))
	require.ErrorIs(t, errs[0], ErrTooLarge)
	require.ErrorIs(t, errs[1], ErrOutcomeUnknown, "it was sent, and nobody waits")
	s.c.now.Store(s)
	a, err := s.c.Do(t.Context(), &kv.Request{Op: kv.OpSet, Key: []byte("k"), Value: make([]byte, 11)})
	require.NoError(t, err)
	require.Equal(t, kv.TooLarge, a.Status)
}

// A target is not taken twice: a client that switched to the one that it READs through would forget that.
func TestTargetIsToldTwice(t *testing.T) {
	w := &way{}
	s := &session{through: &through{number: 4}}
	s.through.now.Store(w)
	for _, number := range []uint64{4, 3} {
		require.NoError(t, s.toldTarget(wire.AppendTarget(nil, &wire.Target{Epoch: 1, Number: number})))
		require.Same(t, w, s.through.now.Load())
	}
}
