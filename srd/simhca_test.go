//go:build simhca && linux && cgo

package srd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/srd"
	"github.com/goverbs/goverbs/verbs"
)

// SRD queue pairs of the unchanged libefa, over devices that are simulated below it; and
// UD queue pairs of libmlx5.

func init() {
	switch devices := os.Getenv("SIMHCA"); {
	case strings.Contains(devices, "mlx5"):
		simulated = []string{"mlx5_0", "mlx5_1"}
	case strings.Contains(devices, "efa"):
		onEFA = true
		simulated = []string{"efa_0", "efa_0"}
		unheard = func(t testing.TB, a, b *srd.Endpoint) srd.Addr {
			require.NoError(t, simhca.Hold(simulated[0], a.Addr().QPN, time.Minute))
			return b.Addr()
		}
	}
}

// efaPair opens endpoints on a simulated device of EFA.
func efaPair(t *testing.T, cfg srd.Config) (a, b *srd.Endpoint) {
	if !onEFA {
		t.Skip("needs SIMHCA=efa")
	}
	return pair(t, cfg)
}

// Endpoints of one device wait for events, each at a completion queue of its own.
func TestSimulatedEndpointsOfOneDevice(t *testing.T) {
	if !onEFA {
		t.Skip("needs SIMHCA=efa")
	}
	dev, err := verbs.Open(simulated[0], verbs.DeviceConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Close()) })
	gid, err := dev.FindGID(verbs.GIDQuery{Port: 1})
	require.NoError(t, err)
	var eps [3]*srd.Endpoint
	for i := range eps {
		eps[i], err = srd.Open(srd.Config{PD: pd, GID: gid})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, eps[i].Close()) })
	}
	for i, ep := range eps {
		to := eps[(i+1)%len(eps)]
		time.Sleep(100 * time.Millisecond) // both ends wait for events
		require.NoError(t, ep.Destination(to.Addr(), srd.Reliable).Send(ctxOf(t), []byte("hello")))
		_, got := receiveOne(t, to)
		require.Equal(t, "hello", string(got))
	}
}

// Messages from none to a mebibyte come by each service, many at a time
// and whatever order the device has.
func TestSimulatedLengths(t *testing.T) {
	a, b := efaPair(t, srd.Config{})
	require.Greater(t, a.MaxPacket(), 8000, "a packet is as long as the device lets it be")
	lengths := []int{0, 1, 8, 4096, a.MaxPacket() - 1, a.MaxPacket(), a.MaxPacket() + 1, 100_000, 1 << 20}
	for service := srd.Reliable; service <= srd.NoRetransmit; service++ {
		q, err := a.NewQueue(srd.QueueConfig{Service: service})
		require.NoError(t, err)
		posted := 0
		for i, n := range lengths {
			r := srd.Request{ID: uint64(i), To: b.Addr(), Data: [][]byte{bytes.Repeat([]byte{byte(i)}, n)}, Packets: true}
			_, err := q.Post(r)
			require.NoError(t, err)
			posted++
		}
		seen := make(map[int]bool)
		for k := range posted {
			m, got := receiveOne(t, b)
			i := 0
			if len(got) > 0 {
				i = int(got[0])
			}
			require.True(t, bytes.Equal(bytes.Repeat([]byte{byte(i)}, lengths[i]), got), "%d bytes came as %d", lengths[i], len(got))
			require.Equal(t, service, m.Service)
			if service == srd.Ordered {
				require.Equal(t, k, i)
			}
			seen[i] = true
		}
		require.Len(t, seen, posted)
		for done := 0; done < posted; {
			var cs [4]srd.Completion
			n, err := q.Wait(ctxOf(t), cs[:])
			require.NoError(t, err)
			for _, c := range cs[:n] {
				require.Equal(t, srd.Delivered, c.Status, "service %d, %d bytes", service, lengths[c.ID])
				require.Len(t, c.Packets, max(1, (lengths[c.ID]+a.MaxPacket()-1)/a.MaxPacket()))
			}
			done += n
		}
		require.NoError(t, q.Close())
	}
}

// faults are what EFA says of packets.
var faults = []verbs.WCStatus{verbs.WCRNRRetryExceeded, verbs.WCRemoteAborted, verbs.WCLocalLength, verbs.WCResponseTimeout}

// Whatever the device says of packets, at either end: no message comes twice, or
// changed, and its status is true.
func TestSimulatedFaults(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	for service := srd.Reliable; service <= srd.NoRetransmit; service++ {
		for _, fault := range faults {
			t.Run(fmt.Sprintf("service %d, %v", service, fault), func(t *testing.T) {
				a, b := efaPair(t, srd.Config{PeerTimeout: time.Second})
				q, err := a.NewQueue(srd.QueueConfig{Service: service})
				require.NoError(t, err)
				stop := collect(t, b, service == srd.Ordered)
				ctx, cancel := context.WithCancel(t.Context())
				var failing sync.WaitGroup
				failing.Go(func() {
					for ctx.Err() == nil {
						for _, ep := range []*srd.Endpoint{a, b} {
							if err := simhca.Fail(simulated[0], ep.Addr().QPN, rng.IntN(40), uint32(fault)); err != nil {
								t.Error(err)
							}
						}
						time.Sleep(2 * time.Millisecond)
					}
				})
				const n = 300
				statuses := stream(t, q, b.Addr(), n, 32, 30_000)
				cancel()
				failing.Wait()
				time.Sleep(20 * time.Millisecond) // of what is under way all the same
				got := len(stop())
				t.Logf("%v, %d came; %+v, peer %+v", statuses, got, a.Stats(), b.Stats())
				told := statuses[srd.Delivered]
				require.GreaterOrEqual(t, got, told)
				require.LessOrEqual(t, got, told+statuses[srd.Unresponsive], "others were said not to come")
				if fault != verbs.WCResponseTimeout && service <= srd.Ordered {
					require.Equal(t, n, told)
				}
				if service == srd.NoRetransmit && fault != verbs.WCResponseTimeout {
					require.NotZero(t, statuses[srd.Retransmit])
				}
				require.NoError(t, q.Close())
			})
		}
	}
}

// A queue pair that breaks ends its endpoint, and all calls that wait; peers learn that
// it is gone.
func TestSimulatedBreak(t *testing.T) {
	a, b := efaPair(t, srd.Config{})
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("hello")))
	receiveOne(t, b)
	ended := make(chan error)
	go func() {
		_, err := b.Receive(ctxOf(t), make([]srd.Message, 1))
		ended <- err
	}()
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, simhca.Break(simulated[0], b.Addr().QPN))
	require.ErrorIs(t, <-ended, verbs.WCFlushed)
	require.ErrorIs(t, a.Send(ctxOf(t), b.Addr(), []byte("anybody?")), srd.ErrUnresponsive)
	require.ErrorIs(t, b.Send(ctxOf(t), a.Addr(), []byte("hello")), verbs.WCFlushed)
	require.EqualValues(t, 1, b.Stats().Broken)
}

// A peer that dies is known to be gone at once, and its successor is another peer: what
// was sent to the one never comes to the other.
func TestSimulatedRestart(t *testing.T) {
	a, b := efaPair(t, srd.Config{})
	es := ends(t)
	q, err := a.NewQueue(srd.QueueConfig{})
	require.NoError(t, err)
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), pattern(0, 8)))
	var cs [64]srd.Completion
	for i := range 40 {
		_, err := q.Post(srd.Request{ID: uint64(i), To: b.Addr(), Data: [][]byte{pattern(i, 50_000)}})
		require.NoError(t, err)
	}
	start := time.Now()
	require.NoError(t, b.Close())
	c := open(t, es[1], srd.Config{})
	require.NotEqual(t, b.Addr(), c.Addr())
	require.NotEqual(t, b.Addr().QKey, c.Addr().QKey)
	stop := collect(t, c, false)
	successor := b.Addr()
	successor.QPN = c.Addr().QPN // the number is used again
	require.ErrorIs(t, a.Send(ctxOf(t), successor, pattern(1000, 8)), srd.ErrUnresponsive)
	for done := 0; done < 40; {
		n, err := q.Wait(ctxOf(t), cs[:])
		require.NoError(t, err)
		for _, c := range cs[:n] {
			require.Contains(t, []srd.Status{srd.Delivered, srd.Unresponsive}, c.Status)
		}
		done += n
	}
	require.Less(t, time.Since(start), 4*time.Second, "it took a peer's timeout")
	require.NoError(t, a.Send(ctxOf(t), c.Addr(), pattern(1, 8)))
	require.Equal(t, map[uint64]int{1: 1}, stop())
}

// A receiver with a program that stands still has no buffers after a while: senders are told,
// and do not try for ever. When it goes on, so do they.
func TestSimulatedStandstill(t *testing.T) {
	if !onEFA {
		t.Skip("needs SIMHCA=efa")
	}
	es := ends(t)
	var still, mu sync.Mutex
	got := make(map[uint64]int)
	b := open(t, es[1], srd.Config{Receives: 16, OnMessage: func(m *srd.Message) {
		still.Lock()
		defer still.Unlock()
		mu.Lock()
		defer mu.Unlock()
		got[binary.BigEndian.Uint64(m.Data)]++
	}})
	// Each has credit for a packet, as little as it may be, and they are more than there are buffers.
	var eps []*srd.Endpoint
	for range 24 {
		a := open(t, es[0], srd.Config{Receives: 16, PeerTimeout: 2 * time.Second})
		require.NoError(t, a.Send(ctxOf(t), b.Addr(), pattern(5000+len(eps), 8)))
		eps = append(eps, a)
	}
	still.Lock()
	goOn := sync.OnceFunc(still.Unlock)
	t.Cleanup(goOn) // the endpoint is closed after its callback
	var wait sync.WaitGroup
	var told [16]int
	for i, ep := range eps {
		q, err := ep.NewQueue(srd.QueueConfig{})
		require.NoError(t, err)
		const each = 40
		for k := range each {
			_, err := q.Post(srd.Request{To: b.Addr(), Data: [][]byte{pattern(i*each+k, 64)}})
			require.NoError(t, err)
		}
		wait.Go(func() {
			for done := 0; done < each; {
				var cs [16]srd.Completion
				n, err := q.Wait(ctxOf(t), cs[:])
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, c := range cs[:n] {
					told[c.Status]++
				}
				mu.Unlock()
				done += n
			}
		})
	}
	require.Eventually(t, func() bool { // which takes seven rounds of the senders
		mu.Lock()
		defer mu.Unlock()
		return told[srd.Refused] > 0
	}, testTimeout, time.Millisecond)
	goOn()
	wait.Wait()
	for i, a := range eps {
		require.NoError(t, a.Send(ctxOf(t), b.Addr(), pattern(6000+i, 8)))
	}
	mu.Lock()
	defer mu.Unlock()
	t.Logf("%v; %+v", told, b.Stats())
	require.NotZero(t, told[srd.Refused])
	n := 0
	for tag, times := range got {
		require.Equal(t, 1, times, "message %d", tag)
		if tag < 5000 {
			n++
		}
	}
	require.GreaterOrEqual(t, n, told[srd.Delivered])
	require.LessOrEqual(t, n, told[srd.Delivered]+told[srd.Unresponsive])
}

// Many senders at once are granted what the receiver has buffers for: nothing is refused.
func TestSimulatedIncast(t *testing.T) {
	if !onEFA {
		t.Skip("needs SIMHCA=efa")
	}
	es := ends(t)
	b := open(t, es[1], srd.Config{Receives: 64})
	stop := collect(t, b, false)
	var wait sync.WaitGroup
	for i := range 6 {
		a := open(t, es[0], srd.Config{})
		wait.Go(func() {
			for k := range 20 {
				if err := a.Send(ctxOf(t), b.Addr(), pattern(100*i+k, 100_000)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	require.Len(t, stop(), 120)
}
