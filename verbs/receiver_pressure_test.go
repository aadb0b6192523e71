//go:build linux

package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// pressureTime is how long tests that race look for a bad interleaving.
func pressureTime() time.Duration {
	if testing.Short() {
		return time.Second
	}
	return 10 * time.Second
}

// A receiver that cannot be made leaves the queue pair as it was.
func TestReceiverThatCannotBeMade(t *testing.T) {
	p := rig.Ports(t)
	t.Run("reset", func(t *testing.T) {
		s := rig.NewSide(t, p[0], verbs.QPConfig{KeepReset: true}, verbs.CQConfig{})
		_, err := verbs.NewReceiver(s.QP, verbs.ReceiverConfig{Size: 64, Depth: 4})
		require.ErrorIs(t, err, verbs.ErrState)
		require.NoError(t, s.QP.Close(), "nothing uses it")
	})
	t.Run("not empty", func(t *testing.T) {
		s := rig.NewSide(t, p[0], verbs.QPConfig{MaxRecvWR: 8}, verbs.CQConfig{})
		s.Recv(t, s.QP.MaxRecvWR(), 8)
		_, err := verbs.NewReceiver(s.QP, verbs.ReceiverConfig{Size: 64})
		require.Error(t, err)
		t.Log(err, "; Err:", s.QP.Err())
		require.NoError(t, s.QP.Close(), "nothing uses it")
	})
}

// A message may be taken after a reset; the queue pair's new life is its own.
func TestReceiverMessageAfterReset(t *testing.T) {
	for _, init := range []bool{false, true} {
		t.Run(fmt.Sprint("init ", init), func(t *testing.T) {
			a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
			r, err := verbs.NewReceiver(b.QP, verbs.ReceiverConfig{Size: 64, Depth: 4})
			require.NoError(t, err)
			s := newRequester(t, a, verbs.RequesterConfig{})
			require.NoError(t, s.Send(t.Context(), a.MR.SGE(0, 8)))
			time.Sleep(50 * time.Millisecond)
			require.NoError(t, b.Reset())
			if init {
				require.NoError(t, b.QP.Init())
			}
			require.NoError(t, b.QP.Err())
			_, err = r.Receive(t.Context(), make([]byte, 64))
			require.NoError(t, err, "it arrived before the reset")
			assert.NoError(t, b.QP.Err(), "taking an old message ended the new life")
			require.NoError(t, r.Close())
			assert.NoError(t, b.QP.Err(), "Close of a receiver that was cut off ended the new life")
		})
	}
}

// A queue that overran ends all calls, with the reason.
func TestReceiverBrokenQueue(t *testing.T) {
	for _, cc := range []verbs.CQConfig{{Depth: 8}, {Depth: 8, PollOnly: true}} {
		for _, cancellable := range []bool{false, true} {
			for _, n := range []int{1, 3} {
				t.Run(fmt.Sprint("polled ", cc.PollOnly, " cancellable ", cancellable, " callers ", n), func(t *testing.T) {
					p := rig.Ports(t)
					a := rig.NewSide(t, p[0], verbs.QPConfig{MaxSendWR: 256}, cc)
					b := rig.NewSide(t, p[1], verbs.QPConfig{}, verbs.CQConfig{})
					require.NoError(t, a.QP.Connect(b.Endpoint(t), verbs.ConnectConfig{}))
					require.NoError(t, b.QP.Connect(a.Endpoint(t), verbs.ConnectConfig{}))
					batch := a.Batch(t, 64)
					for i := range 64 {
						batch.Write(uint64(i), verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
					}
					overrun := overruns(t, a)
					_, err := batch.Post()
					require.NoError(t, err)
					overrun()
					r, err := verbs.NewReceiver(a.QP, verbs.ReceiverConfig{Size: 64, Depth: 2})
					require.NoError(t, err)
					ctx := context.Background()
					if cancellable {
						ctx = t.Context()
					}
					var wg sync.WaitGroup
					for range n {
						wg.Go(func() {
							_, err := r.Receive(ctx, make([]byte, 64))
							if !errors.Is(err, verbs.ErrOverrun) {
								t.Errorf("not told why: %v", err)
							}
						})
					}
					inTime(t, 8*time.Second, "Receive on a broken queue", wg.Wait)
					if !errors.Is(a.QP.Err(), verbs.ErrOverrun) {
						t.Errorf("Err is %v", a.QP.Err())
					}
					inTime(t, 8*time.Second, "Close", func() { r.Close() })
				})
			}
		}
	}
}

// When the last receiver goes, no goroutine polls for it any more. Here it goes while
// one call copies the only message, so that no receive is posted, and another one
// has just given up waiting.
func TestReceiverParkerLeft(t *testing.T) {
	const size = 8 << 20
	hit, tries := 0, 16
	if testing.Short() {
		tries = 3
	}
	for try := range tries {
		ok := t.Run(fmt.Sprint(try), func(t *testing.T) {
			a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{Spin: -1}, verbs.ConnectConfig{})
			big, err := a.PD.AllocMR(size, verbs.MRConfig{})
			require.NoError(t, err)
			defer big.Close()
			r, err := verbs.NewReceiver(b.QP, verbs.ReceiverConfig{Size: size, Depth: 1})
			require.NoError(t, err)
			s := newRequester(t, a, verbs.RequesterConfig{})
			require.NoError(t, s.Send(t.Context(), big.SGE(0, size)))
			time.Sleep(20 * time.Millisecond)
			buf1, buf2 := make([]byte, size), make([]byte, size)
			copy(buf2, buf2)
			var wg sync.WaitGroup
			var n1 int
			wg.Go(func() {
				m, err := r.Receive(context.Background(), buf1) // copies for long
				n1 = m.Len
				if err != nil {
					t.Log(err)
				}
			})
			time.Sleep(time.Duration(100+200*(try%8)) * time.Microsecond)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
			m2, err2 := r.Receive(ctx, buf2)
			cancel()
			require.NoError(t, r.Close())
			wg.Wait()
			if b.QP.Err() != nil || n1 != size || m2.Len > 0 || !errors.Is(err2, context.DeadlineExceeded) {
				t.Log("missed the window: ", b.QP.Err(), n1, m2.Len, err2)
				return
			}
			hit++
			// The queue is the program's again.
			b.Recv(t, 1, 64)
			require.NoError(t, s.Send(t.Context(), a.MR.SGE(0, 8)))
			time.Sleep(50 * time.Millisecond)
			var wcs [4]verbs.WC
			n, err := b.CQ.Poll(wcs[:])
			require.NoError(t, err)
			require.Equal(t, 1, n, "somebody stole the completion")
		})
		if !ok {
			break
		}
	}
	t.Log(hit, "times in the window")
}

// A reset beside Close begins a new life, which Close leaves alone.
func TestReceiverCloseBesideReset(t *testing.T) {
	p := rig.Ports(t)
	s := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	bad, rounds := 0, 0
	for end := time.Now().Add(pressureTime()); time.Now().Before(end); rounds++ {
		r, err := verbs.NewReceiver(s.QP, verbs.ReceiverConfig{Size: 64, Depth: 1 + rounds%8})
		require.NoError(t, err)
		var wg sync.WaitGroup
		d := time.Duration(rand.IntN(300)) * time.Microsecond
		wg.Go(func() { time.Sleep(d); assert.NoError(t, r.Close()) })
		wg.Go(func() { time.Sleep(150 * time.Microsecond); assert.NoError(t, s.QP.ToReset()) })
		if !inTime(t, 10*time.Second, "Close beside ToReset", wg.Wait) {
			return
		}
		if s.QP.State() == verbs.StateReset && s.QP.Err() != nil {
			if bad++; bad == 1 {
				t.Log(s.QP.Err())
			}
		}
		require.NoError(t, s.QP.ToReset())
		require.NoError(t, s.QP.Init())
	}
	t.Log(rounds, "rounds")
	if bad > 0 {
		t.Errorf("%d of %d times a queue pair in RESET is dead", bad, rounds)
	}
}

// Receivers come and go beside changes of state.
func TestReceiverNewBesideReset(t *testing.T) {
	p := rig.Ports(t)
	s := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			s.QP.ToReset()
			s.QP.Init()
			if rand.IntN(3) == 0 {
				s.QP.ToError()
			}
		}
	})
	n, made := 0, 0
	for end := time.Now().Add(pressureTime()); time.Now().Before(end); n++ {
		r, err := verbs.NewReceiver(s.QP, verbs.ReceiverConfig{Size: 64, Depth: 4})
		if err != nil {
			continue
		}
		made++
		var in sync.WaitGroup
		for range 2 {
			in.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(500))*time.Microsecond)
				defer cancel()
				r.Receive(ctx, make([]byte, 64))
			})
		}
		in.Go(func() { r.Close() })
		if !inTime(t, 8*time.Second, "Close", func() { r.Close(); in.Wait() }) {
			break
		}
	}
	close(stop)
	wg.Wait()
	t.Log(n, "rounds", made, "made")
	require.NoError(t, s.QP.Close())
}

// A datagram that is too long is dropped: an unknown sender does not end the service.
func TestReceiverLongDatagram(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{Type: verbs.UD}, verbs.CQConfig{}, verbs.ConnectConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := newReceiver(t, b, verbs.ReceiverConfig{Size: 64, Depth: 4})
	s := newRequester(t, a, verbs.RequesterConfig{})
	for i := range 64 {
		a.MR.Bytes()[i] = byte(i)
	}
	to := rig.Dest(t, a, b)
	for _, n := range []int{65, 1000, 64} {
		require.NoError(t, s.Do(ctx, verbs.WR{Op: verbs.WRSend, To: new(to), Local: []verbs.SGE{a.MR.SGE(0, n)}}))
	}
	buf := make([]byte, 64)
	m, err := r.Receive(ctx, buf)
	t.Log(m.Len, err, b.QP.Err())
	require.NoError(t, err, "an unknown sender's datagram must not end the service")
	require.Equal(t, 64, m.Len)
	require.Equal(t, a.MR.Bytes()[:64], buf[:m.Len])
}

// Drain would take a receiver's completions.
func TestReceiverIsNotDrained(t *testing.T) {
	_, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	newReceiver(t, b, verbs.ReceiverConfig{Size: 64})
	err := b.QP.Drain(t.Context(), nil)
	t.Log(err)
	require.ErrorIs(t, err, verbs.ErrInUse)
	require.NoError(t, b.QP.Err(), "it was refused, and yet ended the queue pair")
}

// 9: a queue pair in error, untold.
func TestReceiverOfDeadQueuePair(t *testing.T) {
	for _, told := range []bool{true, false} {
		t.Run(fmt.Sprint("told ", told), func(t *testing.T) {
			_, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
			if told {
				require.NoError(t, b.QP.ToError())
			} else {
				require.NoError(t, verbs.ErrorUntold(b.QP))
			}
			_, err := verbs.NewReceiver(b.QP, verbs.ReceiverConfig{Size: 64})
			require.ErrorIs(t, err, verbs.ErrState)
			require.NoError(t, b.Reset())
			require.NoError(t, b.QP.Init())
			newReceiver(t, b, verbs.ReceiverConfig{Size: 64})
		})
	}
}
