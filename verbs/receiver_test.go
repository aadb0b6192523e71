//go:build linux

package verbs_test

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

func newReceiver(t testing.TB, s *rig.Side, cfg verbs.ReceiverConfig) *verbs.Receiver {
	t.Helper()
	r, err := verbs.NewReceiver(s.QP, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// Messages of each kind, and of many packets, come whole and in order.
func TestReceiver(t *testing.T) {
	eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
		for _, typ := range []verbs.QPType{verbs.RC, verbs.UC} {
			a, b := rig.NewPair(t, verbs.QPConfig{Type: typ}, cc, verbs.ConnectConfig{})
			ctx := t.Context()
			r, s := newReceiver(t, b, verbs.ReceiverConfig{Size: 9000, Depth: 4}), newRequester(t, a, verbs.RequesterConfig{})
			buf := make([]byte, r.Size())
			for i := range a.MR.Bytes()[:9000] {
				a.MR.Bytes()[i] = byte(i % 251)
			}
			for _, n := range []int{0, 1, 9000, 12} {
				require.NoError(t, s.Send(ctx, a.MR.SGE(0, n)))
				m, err := r.Receive(ctx, buf)
				require.NoError(t, err)
				require.False(t, m.HasImm)
				require.Equal(t, a.MR.Bytes()[:n], buf[:m.Len])
			}
			require.NoError(t, s.Do(ctx, verbs.SendImmWR(7, a.MR.SGE(0, 3)),
				verbs.WR{Op: verbs.WRWriteImm, Imm: 8, Remote: b.MR.Region().At(64), Local: []verbs.SGE{a.MR.SGE(0, 100)}}, verbs.SendWR(a.MR.SGE(3, 3))))
			m, err := r.Receive(ctx, buf)
			require.NoError(t, err)
			require.True(t, m.HasImm)
			require.EqualValues(t, 7, m.Imm)
			require.Equal(t, a.MR.Bytes()[:3], buf[:m.Len])
			m, err = r.Receive(ctx, buf)
			require.NoError(t, err)
			require.EqualValues(t, 8, m.Imm)
			require.Zero(t, m.Len)
			require.Equal(t, 100, m.Written)
			require.Equal(t, a.MR.Bytes()[:100], b.MR.Bytes()[64:164])
			m, err = r.Receive(ctx, buf)
			require.NoError(t, err)
			require.Equal(t, a.MR.Bytes()[3:6], buf[:m.Len])
		}
	})
}

// A server of datagrams replies to unknown senders.
func TestReceiverOfDatagrams(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{Type: verbs.UD}, verbs.CQConfig{}, verbs.ConnectConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), rig.Timeout)
	defer cancel()
	ra, rb := newReceiver(t, a, verbs.ReceiverConfig{Size: 64}), newReceiver(t, b, verbs.ReceiverConfig{Size: 64})
	sa, sb := newRequester(t, a, verbs.RequesterConfig{}), newRequester(t, b, verbs.RequesterConfig{})
	copy(a.MR.Bytes(), "who is there?")
	require.NoError(t, sa.Do(ctx, verbs.WR{Op: verbs.WRSendImm, Imm: 5, To: new(rig.Dest(t, a, b)), Local: []verbs.SGE{a.MR.SGE(0, 13)}}))
	buf := make([]byte, 64)
	m, err := rb.Receive(ctx, buf)
	require.NoError(t, err)
	require.Equal(t, "who is there?", string(buf[:m.Len]))
	require.EqualValues(t, 5, m.Imm)
	require.Equal(t, a.QP.Num(), m.SrcQP())

	ah, err := m.CreateAH(b.PD, 1)
	require.NoError(t, err)
	defer func() { require.NoError(t, ah.Close()) }()
	copy(b.MR.Bytes(), "me")
	require.NoError(t, sb.Do(ctx, verbs.WR{Op: verbs.WRSend, To: new(verbs.Destination{AH: ah, QPN: m.SrcQP(), QKey: verbs.DefaultQKey}), Local: []verbs.SGE{b.MR.SGE(0, 2)}}))
	m, err = ra.Receive(ctx, buf)
	require.NoError(t, err)
	require.Equal(t, "me", string(buf[:m.Len]))
}

// Both ends send and receive, with several goroutines each, on one completion
// queue with fewer receives than there are senders: each message is had once.
func TestReceiverForMany(t *testing.T) {
	eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
		const senders, receivers, each = 6, 4, 40
		a, b := rig.NewPair(t, verbs.QPConfig{}, cc, verbs.ConnectConfig{})
		ends := []*rig.Side{a, b}
		seen := [2]map[uint64]int{{}, {}}
		var mu sync.Mutex
		var sending, receiving sync.WaitGroup
		ctx, done := context.WithCancel(t.Context())
		for i, e := range ends {
			r, s := newReceiver(t, e, verbs.ReceiverConfig{Size: 64, Depth: 3}), newRequester(t, e, verbs.RequesterConfig{})
			for g := range senders {
				sending.Go(func() {
					for n := range each {
						binary.NativeEndian.PutUint64(e.MR.Bytes()[64*g:], uint64(g*each+n))
						if !assert.NoError(t, s.Send(ctx, e.MR.SGE(64*g, 8))) {
							return
						}
					}
				})
			}
			for range receivers {
				receiving.Go(func() {
					buf := make([]byte, 64)
					for {
						short, cancel := context.WithTimeout(ctx, 3*time.Millisecond)
						m, err := r.Receive(short, buf)
						cancel()
						switch {
						case ctx.Err() != nil && err != nil:
							return
						case errors.Is(err, context.DeadlineExceeded):
							continue
						case !assert.NoError(t, err) || !assert.Equal(t, 8, m.Len):
							return
						}
						mu.Lock()
						seen[i][binary.NativeEndian.Uint64(buf)]++
						mu.Unlock()
					}
				})
			}
		}
		sending.Wait()
		assert.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(seen[0]) == senders*each && len(seen[1]) == senders*each
		}, rig.Timeout, time.Millisecond)
		done()
		receiving.Wait()
		for i := range seen {
			for n, times := range seen[i] {
				require.Equal(t, 1, times, "message %d", n)
			}
		}
	})
}

// What arrived before the end is had, then its cause; waiting calls end.
func TestReceiverEnds(t *testing.T) {
	ends := map[string]struct {
		end  func(*rig.Side, *verbs.Receiver) error
		want error
	}{
		"error": {func(s *rig.Side, _ *verbs.Receiver) error { return s.QP.ToError() }, verbs.WCFlushed},
		"reset": {func(s *rig.Side, _ *verbs.Receiver) error { return s.QP.ToReset() }, verbs.WCFlushed},
		"alone": {func(s *rig.Side, _ *verbs.Receiver) error { return verbs.ErrorUntold(s.QP) }, verbs.WCFlushed},
		"close": {func(_ *rig.Side, r *verbs.Receiver) error { return r.Close() }, verbs.ErrClosed},
	}
	eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
		for name, e := range ends {
			t.Run(name, func(t *testing.T) {
				a, b := rig.NewPair(t, verbs.QPConfig{}, cc, verbs.ConnectConfig{})
				ctx, cancel := context.WithTimeout(t.Context(), rig.Timeout)
				defer cancel()
				r, s := newReceiver(t, b, verbs.ReceiverConfig{Size: 64, Depth: 8}), newRequester(t, a, verbs.RequesterConfig{})
				if name != "close" && name != "reset" {
					for i := range 3 {
						require.NoError(t, s.Send(ctx, a.MR.SGE(0, i+1)))
					}
					require.NoError(t, e.end(b, r))
					for i := range 3 {
						m, err := r.Receive(ctx, make([]byte, 64))
						require.NoError(t, err)
						require.Equal(t, i+1, m.Len)
					}
				} else {
					time.AfterFunc(20*time.Millisecond, func() { assert.NoError(t, e.end(b, r)) })
				}
				var wg sync.WaitGroup
				for range 3 {
					wg.Go(func() {
						_, err := r.Receive(ctx, make([]byte, 64))
						assert.ErrorIs(t, err, e.want)
					})
				}
				wg.Wait()
				if name == "close" { // which ends waits before the queue pair is down
					require.NoError(t, r.Close())
				}
				if name == "reset" {
					require.NoError(t, b.QP.Init(), "the queue pair can begin anew")
				} else {
					require.Error(t, b.QP.Err())
				}
				require.NoError(t, r.Close())
				require.NoError(t, r.Close())
				_, err := r.Receive(ctx, make([]byte, 64))
				require.ErrorIs(t, err, verbs.ErrClosed)
			})
		}
	})
}

// A message that is too long ends the connection, and both sides hear why.
func TestReceiverOfTooMuch(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	r, s := newReceiver(t, b, verbs.ReceiverConfig{Size: 64}), newRequester(t, a, verbs.RequesterConfig{})
	err := s.Send(t.Context(), a.MR.SGE(0, 65))
	if !errors.Is(err, verbs.WCRemoteOperation) { // rxe's answer
		require.ErrorIs(t, err, verbs.WCRemoteInvalid)
	}
	require.ErrorContains(t, err, "look at ReceiverConfig.Size")
	_, err = r.Receive(t.Context(), make([]byte, 64))
	require.ErrorIs(t, err, verbs.WCFlushed)
	require.Error(t, b.QP.Err())
	require.ErrorContains(t, err, "look at ReceiverConfig.Size")
	require.Equal(t, 2, strings.Count(err.Error(), "qp"), "it names the queue pairs once: %v", err)
}

func TestReceiverRefuses(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{MaxRecvWR: 8}, verbs.CQConfig{}, verbs.ConnectConfig{})
	for _, cfg := range []verbs.ReceiverConfig{{Size: -1}, {Depth: -1}, {Depth: b.QP.MaxRecvWR() + 1}} {
		_, err := verbs.NewReceiver(b.QP, cfg)
		require.ErrorIs(t, err, verbs.ErrAttributes, "%+v", cfg)
	}
	early, err := b.QP.NewRecvBatch(1)
	require.NoError(t, err)
	r := newReceiver(t, b, verbs.ReceiverConfig{Size: 64})
	_, err = verbs.NewReceiver(b.QP, verbs.ReceiverConfig{})
	require.ErrorIs(t, err, verbs.ErrInUse)
	require.ErrorIs(t, b.QP.Close(), verbs.ErrInUse)
	early.Recv(1, b.MR.SGE(0, 8))
	_, err = early.Post()
	require.ErrorIs(t, err, verbs.ErrInUse)
	var wcs [1]verbs.WC
	_, err = b.CQ.Poll(wcs[:])
	require.ErrorIs(t, err, verbs.ErrInUse)
	_, err = r.Receive(t.Context(), make([]byte, 63))
	require.ErrorIs(t, err, verbs.ErrAttributes)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.Receive(ended, make([]byte, 64))
	require.ErrorIs(t, err, context.Canceled)
	s := newRequester(t, a, verbs.RequesterConfig{})
	require.NoError(t, s.Send(t.Context(), a.MR.SGE(0, 5)))
	m, err := r.Receive(t.Context(), make([]byte, 64))
	require.NoError(t, err)
	require.Equal(t, 5, m.Len)
}

func TestReceiverDoesNotAllocate(t *testing.T) {
	eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
		a, b := rig.NewPair(t, verbs.QPConfig{}, cc, verbs.ConnectConfig{})
		r, s := newReceiver(t, b, verbs.ReceiverConfig{Size: 64}), newRequester(t, a, verbs.RequesterConfig{})
		ctx, buf := t.Context(), make([]byte, 64)
		require.Zero(t, testing.AllocsPerRun(50, func() {
			if err := s.Send(ctx, a.MR.SGE(0, 8)); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Receive(ctx, buf); err != nil {
				t.Fatal(err)
			}
		}))
	})
}
