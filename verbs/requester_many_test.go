//go:build linux

package verbs_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// stamped is a buffer that shows writes by others.
type stamped struct {
	b     []byte
	stamp uint64
}

func (s *stamped) put(n uint64) {
	s.stamp = n
	for i := 0; i < len(s.b); i += 8 {
		binary.NativeEndian.PutUint64(s.b[i:], n)
	}
}

func (s *stamped) kept() bool { return s.is(s.stamp) }

func (s *stamped) is(n uint64) bool {
	for i := 0; i < len(s.b); i += 8 {
		if binary.NativeEndian.Uint64(s.b[i:]) != n {
			return false
		}
	}
	return true
}

// over waits until the device is done with what a call has left under way, and returns the
// result of the request.
func over(err error) error {
	var left *verbs.InFlightError
	if !errors.As(err, &left) {
		return err
	}
	<-left.Done()
	return left.Err()
}

// Sixteen goroutines on two queue pairs with one completion queue: each has the
// data that it asked for, whatever becomes of contexts and of the connection, and
// what a call has given back is written to no more.
func TestRequesterForMany(t *testing.T) {
	eachCQ(t, func(t *testing.T, cc verbs.CQConfig) {
		for _, cut := range []bool{false, true} {
			name := "connections stay"
			if cut {
				name = "connections are cut"
			}
			t.Run(name, func(t *testing.T) { requestersForMany(t, cc, cut) })
		}
	})
}

func requestersForMany(t *testing.T, cc verbs.CQConfig, cut bool) {
	const goroutines, size, places = 16, 256, 64
	seed := testseed.New(t)
	p := rig.Ports(t)
	a, b := rig.NewSide(t, p[0], verbs.QPConfig{MaxSendWR: 12}, cc), rig.NewSide(t, p[1], verbs.QPConfig{}, verbs.CQConfig{})
	// On a host with other work a reply may come late, and is asked for again.
	patient := verbs.ConnectConfig{AckTimeout: 4 * time.Second}
	qps := []*verbs.QP{a.QP}
	{
		second, err := a.PD.CreateQP(verbs.QPConfig{SendCQ: a.CQ, GID: p[0].GID, MaxSendWR: 3})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, second.Close()) })
		peer, err := b.PD.CreateQP(verbs.QPConfig{SendCQ: b.CQ, GID: p[1].GID})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, peer.Close()) })
		qps = append(qps, second)
		for i, far := range []*verbs.QP{b.QP, peer} {
			e, err := far.Endpoint()
			require.NoError(t, err)
			require.NoError(t, qps[i].Connect(e, patient))
			e, err = qps[i].Endpoint()
			require.NoError(t, err)
			require.NoError(t, far.Connect(e, patient))
		}
	}
	for i := range places {
		(&stamped{b: b.MR.Bytes()[i*size : (i+1)*size]}).put(uint64(i + 1))
	}
	var rs []*verbs.Requester
	cfg := verbs.RequesterConfig{Linger: 20 * time.Second} // a packet that got lost is sent again after AckTimeout
	for _, q := range qps {
		r, err := verbs.NewRequester(q, cfg)
		require.NoError(t, err)
		rs = append(rs, r)
	}
	far := b.MR.Region()
	ops := 400
	if testing.Short() {
		ops = 60
	}
	var added [2]atomic.Int64
	var done, refused atomic.Int64
	var lost atomic.Bool
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			buf := &stamped{b: a.MR.Bytes()[g*size : (g+1)*size]}
			buf.put(rng.Uint64())
			for n := range ops {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if rng.IntN(3) == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(1000))*time.Microsecond)
				}
				which := rng.IntN(2)
				r, place := rs[which], rng.IntN(places)
				if !buf.kept() {
					t.Error("a buffer was written to that was given back")
				}
				var err error
				begin := time.Now()
				cut := cut || lost.Load()
				switch rng.IntN(4) {
				case 0:
					_, err = r.FetchAdd(ctx, far.At(uint64(places*size+8*which)), 1)
					if over(err) == nil {
						added[which].Add(1)
					}
				case 1:
					buf.put(uint64(g + 1))
					err = r.Write(ctx, far.At(uint64(65536+g*size)), a.MR.SGE(g*size, size))
					over(err)
					buf.put(rng.Uint64())
				default:
					err = r.Read(ctx, far.At(uint64(place*size)), a.MR.SGE(g*size, size))
					if err == nil && !buf.is(uint64(place+1)) {
						t.Errorf("READ of place %d answered something else", place+1)
					}
					over(err)
					buf.put(rng.Uint64())
				}
				cancel()
				if took := time.Since(begin); took > time.Second {
					t.Logf("operation %d on %d took %v: %v", n, which, took, err)
				}
				if err == nil {
					done.Add(1)
				} else {
					refused.Add(1)
				}
				switch {
				case err == nil:
				case errors.Is(err, verbs.ErrNoResult): // Soft-RoCE's habit; the queue pair ends
					t.Log(err)
					lost.Store(true)
				case cut && errors.Is(err, verbs.ErrClosed):
				case cut && (errors.Is(err, verbs.WCFlushed) || errors.Is(err, verbs.WCRetryExceeded)):
					if qps[which].Err() == nil {
						t.Errorf("%v, and the queue pair stands", err)
					}
				case errors.Is(err, context.DeadlineExceeded):
				default:
					t.Errorf("operation %d: %v", n, err)
				}
				if cut && g == 0 && n == ops/2 {
					require.NoError(t, qps[0].ToError())
				}
				if cut && g == 1 && n == ops/2 {
					require.NoError(t, rs[1].Close())
				}
			}
			if !buf.kept() {
				t.Error("a buffer was written to that was given back")
			}
		})
	}
	wg.Wait()
	t.Log(done.Load(), "operations done,", refused.Load(), "with an error")
	require.EqualValues(t, goroutines*ops, done.Load()+refused.Load())
	for i, r := range rs {
		require.NoError(t, r.Close())
		if !cut && !lost.Load() {
			require.NoError(t, qps[i].Err())
			require.EqualValues(t, added[i].Load(), verbs.Uint64(b.MR.Bytes(), places*size+8*i))
		}
	}
}
