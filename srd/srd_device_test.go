//go:build linux

package srd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/srd"
	"github.com/goverbs/goverbs/verbs"
)

const testTimeout = 30 * time.Second

func ctxOf(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// simulated are devices that stand for the ends of the wire: those of $SIMHCA. onEFA says
// that they deliver packets by themselves.
var (
	simulated []string
	onEFA     bool
)

// ends are both ends of the wire.
func ends(t testing.TB) []lab.Endpoint {
	t.Helper()
	if len(simulated) > 0 {
		return []lab.Endpoint{{Device: simulated[0]}, {Device: simulated[1]}}
	}
	lab.NoLeftovers(t)
	return lab.Require(t, 2)
}

// pair opens endpoints at both ends of the wire.
func pair(t testing.TB, cfg srd.Config) (a, b *srd.Endpoint) {
	t.Helper()
	es := ends(t)
	return open(t, es[0], cfg), open(t, es[1], cfg)
}

// unheard returns an address from which an endpoint hears nothing for long.
var unheard = func(_ testing.TB, _, b *srd.Endpoint) srd.Addr {
	nobody := b.Addr()
	nobody.QPN += 1000
	return nobody
}

func open(t testing.TB, e lab.Endpoint, cfg srd.Config) *srd.Endpoint {
	t.Helper()
	return openAt(t, e, cfg, nil)
}

// openAt is open with a GID that change changes.
func openAt(t testing.TB, e lab.Endpoint, cfg srd.Config, change func(*verbs.GIDEntry)) *srd.Endpoint {
	t.Helper()
	dev, err := verbs.Open(e.Device, verbs.DeviceConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	cfg.PD, err = dev.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cfg.PD.Close()) })
	at := verbs.GIDQuery{Addr: e.Addr}
	if len(simulated) > 0 {
		at = verbs.GIDQuery{Port: 1}
	}
	cfg.GID, err = dev.FindGID(at)
	require.NoError(t, err)
	if change != nil {
		change(&cfg.GID)
	}
	ep, err := srd.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ep.Close()) })
	return ep
}

func pattern(tag, n int) []byte {
	b := make([]byte, max(n, 8))
	for i := range b {
		b[i] = byte(i*11 + i>>8 + tag)
	}
	binary.BigEndian.PutUint64(b, uint64(tag))
	return b
}

// receiveOne takes a message.
func receiveOne(t testing.TB, ep *srd.Endpoint) (srd.Message, []byte) {
	t.Helper()
	var ms [1]srd.Message
	_, err := ep.Receive(ctxOf(t), ms[:])
	require.NoError(t, err)
	data := bytes.Clone(ms[0].Data)
	ep.Release(ms[:]...)
	return ms[0], data
}

// Messages of all lengths go by all services.
func TestSend(t *testing.T) {
	for _, key := range [][]byte{nil, []byte("0123456789abcdef")} {
		t.Run(fmt.Sprintf("key %s", key), func(t *testing.T) {
			a, b := pair(t, srd.Config{Key: key})
			for service := srd.Reliable; service <= srd.NoRetransmit; service++ {
				c := a.Destination(b.Addr(), service)
				for i, n := range []int{8, 1000, a.MaxPacket(), a.MaxPacket() + 1, 300000} {
					want := pattern(i, n)
					before := a.Stats().Timeouts
					err := c.Send(ctxOf(t), want[:5], want[5:])
					for errors.Is(err, srd.ErrRetransmit) && (a.Stats().Broken+b.Stats().Broken > 0 || a.Stats().Timeouts > before) {
						// Soft-RoCE gave up a queue pair with the packets in it, as it does
						// now and then, or a busy machine was too late to answer; this service
						// leaves that to its user.
						before = a.Stats().Timeouts
						err = c.Send(ctxOf(t), want[:5], want[5:])
					}
					require.NoError(t, err, "service %d, %d bytes", service, n)
					m, got := receiveOne(t, b)
					require.True(t, bytes.Equal(want, got), "service %d, %d bytes: got %d", service, n, len(got))
					require.Equal(t, a.Addr(), m.From)
					require.Equal(t, service, m.Service)
				}
			}
			require.NoError(t, b.Send(ctxOf(t), a.Addr(), []byte("back")))
			_, got := receiveOne(t, a)
			require.Equal(t, "back", string(got))
		})
	}
}

// stream posts n messages by a queue, with so many under way, and counts statuses.
func stream(t testing.TB, q *srd.SendQueue, to srd.Addr, n, depth, size int) map[srd.Status]int {
	t.Helper()
	statuses := make(map[srd.Status]int)
	var cs [64]srd.Completion
	posted, done := 0, 0
	for done < n {
		var rs []srd.Request
		for posted-done+len(rs) < depth && posted+len(rs) < n && len(rs) < 32 {
			i := posted + len(rs)
			rs = append(rs, srd.Request{ID: uint64(i), To: to, Data: [][]byte{pattern(i, size)}})
		}
		k, err := q.Post(rs...)
		require.NoError(t, err)
		posted += k
		k, err = q.Wait(ctxOf(t), cs[:])
		require.NoError(t, err)
		for _, c := range cs[:k] {
			statuses[c.Status]++
		}
		done += k
	}
	return statuses
}

// collect receives until it is stopped, then all that is there, and fails at what comes twice or
// changed.
func collect(t testing.TB, ep *srd.Endpoint, ordered bool) (stop func() map[uint64]int) {
	got := make(map[uint64]int)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		var ms [32]srd.Message
		last := -1
		for {
			n, err := ep.Receive(ctx, ms[:])
			if err != nil {
				return
			}
			for _, m := range ms[:n] {
				tag := binary.BigEndian.Uint64(m.Data)
				if !bytes.Equal(m.Data, pattern(int(tag), len(m.Data))) {
					t.Errorf("message %d came changed", tag)
				}
				if ordered && int(tag) <= last {
					t.Errorf("message %d came after %d", tag, last)
				}
				last = int(tag)
				got[tag]++
			}
			ep.Release(ms[:n]...)
		}
	}()
	return func() map[uint64]int {
		require.Eventually(t, func() bool { return ep.Waiting() == 0 }, testTimeout, time.Millisecond)
		cancel()
		wg.Wait()
		for tag, n := range got {
			if n != 1 {
				t.Errorf("message %d came %d times", tag, n)
			}
		}
		return got
	}
}

// Nothing is lost, doubled, changed or said wrongly on a wire that does all of it.
func TestBadWire(t *testing.T) {
	if len(simulated) > 0 {
		t.Skip("simulated devices have no wire")
	}
	for _, service := range []srd.Service{srd.Reliable, srd.Ordered, srd.NoRetransmit} {
		t.Run(fmt.Sprint("service ", service), func(t *testing.T) {
			a, b := pair(t, srd.Config{})
			lab.ImpairWire(t, lab.Impairment{Delay: 300 * time.Microsecond, Jitter: 200 * time.Microsecond, Loss: 0.05, Duplicate: 0.03, Reorder: 0.05, Corrupt: 0.01})
			q, err := a.NewQueue(srd.QueueConfig{Service: service})
			require.NoError(t, err)
			stop := collect(t, b, service == srd.Ordered)
			const n = 600
			statuses := stream(t, q, b.Addr(), n, 64, 5000)
			t.Logf("%v, %+v, peer %+v", statuses, a.Stats(), b.Stats())
			if statuses[srd.Unresponsive] > 0 {
				t.Logf("%+v", a.Peers())
				t.Logf("%+v", b.Peers())
			}
			got := stop()
			require.Equal(t, len(got), statuses[srd.Delivered])
			if service == srd.NoRetransmit {
				require.Equal(t, n, statuses[srd.Delivered]+statuses[srd.Retransmit])
				require.NotZero(t, statuses[srd.Retransmit])
			} else {
				require.Equal(t, n, statuses[srd.Delivered])
				require.NotZero(t, a.Stats().Retransmitted)
			}
			require.NoError(t, q.Close())
		})
	}
}

// A receiver that takes nothing refuses what it has no memory for.
func TestRefusals(t *testing.T) {
	a, b := pair(t, srd.Config{Buffers: 1 << 16})
	refused := 0
	for i := range 100 {
		switch err := a.Send(ctxOf(t), b.Addr(), pattern(i, 2000)); {
		case err == nil:
			require.Zero(t, refused)
		default:
			require.ErrorIs(t, err, srd.ErrRefused)
			refused++
		}
	}
	require.Equal(t, 100-32, refused)
	q, err := a.NewQueue(srd.QueueConfig{})
	require.NoError(t, err)
	_, err = q.Post(srd.Request{ID: 7, To: b.Addr(), Data: [][]byte{make([]byte, 10000)}, Packets: true})
	require.NoError(t, err)
	var cs [1]srd.Completion
	_, err = q.Wait(ctxOf(t), cs[:])
	require.NoError(t, err)
	require.Equal(t, srd.Refused, cs[0].Status)
	require.Len(t, cs[0].Packets, (10000+a.MaxPacket()-1)/a.MaxPacket())
	require.Contains(t, cs[0].Packets, srd.Refused)
	for range 32 {
		receiveOne(t, b)
	}
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), pattern(1, 2000)))
}

// A peer that is gone is unresponsive; its successor is another peer.
func TestPeerGone(t *testing.T) {
	es := ends(t)
	a := open(t, es[0], srd.Config{PeerTimeout: 500 * time.Millisecond})
	b := open(t, es[1], srd.Config{})
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("hello")))
	require.NoError(t, b.Close())
	require.ErrorIs(t, a.Send(ctxOf(t), b.Addr(), []byte("anybody?")), srd.ErrUnresponsive)
	c := open(t, es[1], srd.Config{})
	require.NoError(t, a.Send(ctxOf(t), c.Addr(), []byte("hello")))
	if onEFA { // it says at once that there is no queue pair
		return
	}
	ctx, cancel := context.WithTimeout(ctxOf(t), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, a.Send(ctx, b.Addr(), []byte("anybody?")), context.DeadlineExceeded)
}

// Many goroutines send and receive at once, by callback too.
func TestGoroutines(t *testing.T) {
	es := ends(t)
	a := open(t, es[0], srd.Config{})
	var mu sync.Mutex
	got := make(map[uint64]int)
	b := open(t, es[1], srd.Config{OnMessage: func(m *srd.Message) {
		mu.Lock()
		defer mu.Unlock()
		got[binary.BigEndian.Uint64(m.Data)]++
	}})
	var wg sync.WaitGroup
	const goroutines, each = 8, 30
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				if err := a.Send(ctxOf(t), b.Addr(), pattern(g*each+i, 100*i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) == goroutines*each
	}, testTimeout, time.Millisecond)
	for tag, n := range got {
		require.Equal(t, 1, n, "message %d", tag)
	}
}

// An endpoint reports its peers and paths at a unix socket, while it is open.
func TestMonitor(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "srd.sock")
	es := ends(t)
	a := open(t, es[0], srd.Config{Monitor: socket, Paths: 3})
	b := open(t, es[1], srd.Config{})
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("hello")))
	r, err := srd.ReadReport(ctxOf(t), socket)
	require.NoError(t, err)
	require.Equal(t, a.Addr().String(), r.Addr)
	require.Equal(t, os.Getpid(), r.PID)
	require.NotZero(t, r.Stats.Sent)
	require.Len(t, r.Peers, 1)
	require.Equal(t, b.Addr().String(), r.Peers[0].Addr)
	if !onEFA { // it has its paths to itself
		require.Len(t, r.Peers[0].Paths, 3)
	}
	require.NoError(t, a.Close())
	_, err = srd.ReadReport(ctxOf(t), socket)
	require.Error(t, err)
}

// Everything that returns an error returns ErrClosed after Close, which may be called twice;
// calls that wait end.
func TestClosed(t *testing.T) {
	a, b := pair(t, srd.Config{})
	require.NoError(t, a.Send(ctxOf(t), b.Addr(), []byte("hello")))
	q, err := a.NewQueue(srd.QueueConfig{})
	require.NoError(t, err)
	var waits sync.WaitGroup
	ended := func(f func() error) {
		waits.Go(func() {
			if err := f(); !errors.Is(err, verbs.ErrClosed) {
				t.Error(err)
			}
		})
	}
	receive := func() error { _, err := a.Receive(ctxOf(t), make([]srd.Message, 1)); return err }
	wait := func() error { _, err := q.Wait(ctxOf(t), make([]srd.Completion, 1)); return err }
	ended(receive)
	ended(receive)
	ended(wait)
	nobody := unheard(t, a, b)
	send := func() error { return a.Send(ctxOf(t), nobody, []byte("anybody?")) }
	ended(send)
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	waits.Wait()
	for name, call := range map[string]func() error{
		"Receive": receive, "Wait": wait, "Send": send,
		"Context.Send": func() error { return a.Destination(b.Addr(), srd.Ordered).Send(ctxOf(t)) },
		"NewQueue":     func() error { _, err := a.NewQueue(srd.QueueConfig{}); return err },
		"Post":         func() error { _, err := q.Post(srd.Request{To: b.Addr()}); return err },
	} {
		require.ErrorIs(t, call(), verbs.ErrClosed, name)
	}
	require.NoError(t, q.Close())
}
