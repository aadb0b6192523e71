//go:build simhca && linux && cgo

package dc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/verbs"
)

// DCIs and DCTs of the unchanged libmlx5, over devices that are simulated below it.

func init() {
	if os.Getenv("SIMHCA") != "" {
		simulated = []string{"mlx5_0", "mlx5_1"}
	}
}

// dcHosts are two simulated devices, for the hardware back end.
func dcHosts(t *testing.T) (a, b *host) {
	if !strings.Contains(os.Getenv("SIMHCA"), "mlx5") {
		t.Skip(`needs SIMHCA="mlx5 mlx5"`)
	}
	a, b = newHosts(t)
	a.backend, b.backend = dc.Hardware, dc.Hardware
	return a, b
}

// everyStreams are what a DCI may be made with: all that the device has, none, few.
var everyStreams = []int{0, -1, 2}

// One initiator reaches more targets than it has streams, by every operation.
func TestSimulatedTargets(t *testing.T) {
	a, b := dcHosts(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for _, streams := range everyStreams {
		i := a.initiator(t, dc.InitiatorConfig{Contexts: 2, Depth: 8, Streams: streams, MaxInline: 32, Masked: true})
		require.True(t, i.Hardware())
		const targets = 24
		var all []*dc.Target
		var peers []*dc.Peer
		for n := range targets {
			target := b.target(t, dc.TargetConfig{AccessKey: uint64(n), Receives: 8})
			recv, err := target.NewRecvBatch(2)
			require.NoError(t, err)
			for k := range 2 {
				recv.Recv(uint64(k), b.mr.SGE(65536+128*n+64*k, 64))
			}
			_, err = recv.Post()
			require.NoError(t, err)
			all = append(all, target)
			peers = append(peers, resolve(t, i, target, uint64(n)))
		}
		clear(b.mr.Bytes())
		for n, p := range peers {
			word := b.mr.Region().At(uint64(4096 + 64*n))
			local := func(k int) verbs.SGE { return a.mr.SGE(1024*n+8*k, 8) }
			binary.NativeEndian.PutUint64(a.mr.Bytes()[1024*n:], uint64(1000+n))
			rs := []dc.Request{
				{ID: 1, Op: dc.Write, Local: local(0), Remote: word},
				{ID: 2, Op: dc.FetchAdd, Local: local(1), Remote: word, Value: 5},
				{ID: 3, Op: dc.CmpSwap, Local: local(2), Remote: word, Compare: uint64(1005 + n), Value: 0xf0},
				{ID: 4, Op: dc.MaskedFetchAdd, Local: local(3), Remote: word, Value: 0x11, Mask: 0x80}, // the carry is lost
				{ID: 5, Op: dc.MaskedCmpSwap, Local: local(4), Remote: word, Compare: 1, CompareMask: 0xf, Value: 0xff00, Mask: 0xf00},
				{ID: 6, Op: dc.Read, Flags: verbs.Fence, Local: local(5), Remote: word},
				{ID: 7, Op: dc.Send, Flags: verbs.Inline, Local: local(0)},
				{ID: 8, Op: dc.SendImm, Local: local(0), Imm: uint32(n)},
			}
			do(t, i, p, rs...)
			for k, want := range []uint64{uint64(1000 + n), uint64(1005 + n), 0xf0, 0x01, 0xf01} {
				require.Equal(t, want, verbs.Uint64(a.mr.Bytes(), 1024*n+8*(k+1)), "target %d, result %d", n, k)
			}
			for got := 0; got < 2; {
				var in [2]dc.Received
				m, err := all[n].Wait(ctx, in[:])
				require.NoError(t, err)
				for _, r := range in[:m] {
					require.NoError(t, r.Err)
					require.Equal(t, 8, r.Len)
					require.Equal(t, got == 1, r.HasImm)
					require.EqualValues(t, 1000+n, verbs.Uint64(b.mr.Bytes(), 65536+128*n+64*got))
					got++
				}
			}
		}
		require.Zero(t, i.Stats().Failures)
		require.NoError(t, i.Close())
	}
}

// Lists of which a request may fail, to several targets at once. Only the last request of a list has a completion, but
// each ends, and what comes later is as if nothing had been.
func TestSimulatedListsThatFail(t *testing.T) {
	a, b := dcHosts(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	r := rand.New(rand.NewPCG(testseed.New(t), 0))
	for _, streams := range everyStreams {
		i := a.initiator(t, dc.InitiatorConfig{Contexts: 1, Depth: 32, Streams: streams})
		var peers []*dc.Peer
		for n := range 3 {
			peers = append(peers, resolve(t, i, b.target(t, dc.TargetConfig{AccessKey: uint64(n)}), uint64(n)))
		}
		for range 100 {
			lists, fails := make([]dc.Pending, 1+r.IntN(len(peers))), false
			for n := range lists {
				var rs []dc.Request
				for k := range 1 + r.IntN(8) {
					rs = append(rs, a.write(uint64(k), b, 0))
				}
				if bad := r.IntN(4 * len(rs)); bad < len(rs) {
					rs[bad].Remote.RKey ^= 0xff00
					fails = true
				}
				var err error
				lists[n], err = i.Start(peers[n], rs)
				require.NoError(t, err)
			}
			for _, w := range lists {
				if err := w.Wait(ctx); !fails {
					require.NoError(t, err)
				} else if err != nil && !errors.Is(err, dc.ErrSession) {
					require.ErrorIs(t, err, verbs.WCRemoteAccess)
				}
				require.Zero(t, w.Left())
			}
		}
		for _, p := range peers {
			do(t, i, p, a.write(1, b, 0))
		}
		require.NoError(t, i.Close())
	}
}

// mixed are requests that are posted to peers at once, by their number.
func mixed(t *testing.T, i *dc.Initiator, a, b *host, peers []*dc.Peer, each int) map[*dc.Peer][]error {
	t.Helper()
	for k := range each {
		for _, p := range peers {
			_, err := i.Post(p, a.write(uint64(k), b, 0))
			require.NoError(t, err)
		}
	}
	out := map[*dc.Peer][]error{}
	for _, c := range wait(t, i, each*len(peers)) {
		require.EqualValues(t, len(out[c.Peer]), c.ID, "in order")
		out[c.Peer] = append(out[c.Peer], c.Err)
	}
	return out
}

// A target that shows the wrong key fails alone if it has a stream of its own, and
// with the others in its DCI if not; afterwards all works.
func TestSimulatedWrongKey(t *testing.T) {
	a, b := dcHosts(t)
	for _, streams := range everyStreams {
		i := a.initiator(t, dc.InitiatorConfig{Contexts: 1, Depth: 16, Streams: streams, Masked: true})
		good, other := b.target(t, dc.TargetConfig{AccessKey: 1}), b.target(t, dc.TargetConfig{AccessKey: 1})
		peers := []*dc.Peer{resolve(t, i, good, 1), resolve(t, i, other, 2)}
		for range 10 {
			got := mixed(t, i, a, b, peers, 6)
			require.ErrorIs(t, got[peers[1]][0], verbs.WCRemoteAccess)
			for _, err := range got[peers[1]] {
				require.Error(t, err)
			}
			for _, err := range got[peers[0]] {
				if err != nil {
					require.ErrorIs(t, err, dc.ErrSession)
					require.NotZero(t, min(streams, 0), "it has a stream of its own")
				}
			}
			do(t, i, peers[0], a.write(1, b, 0))
			if streams < 0 {
				continue
			}
			// A masked atomic is a raw entry, which names its stream itself.
			masked := dc.Request{Op: dc.MaskedFetchAdd, Local: a.mr.SGE(0, 8), Remote: b.mr.Region().At(0)}
			for _, p := range []*dc.Peer{peers[1], peers[0], peers[0], peers[0]} {
				_, err := i.Post(p, masked)
				require.NoError(t, err)
			}
			for _, c := range wait(t, i, 4) {
				require.Equal(t, c.Peer == peers[0], c.Err == nil, "%v", c.Err)
			}
		}
		do(t, i, resolve(t, i, other, 1), a.write(2, b, 0))
		require.GreaterOrEqual(t, i.Stats().Failures, uint64(10))
		require.NoError(t, i.Close())
	}
}

// A target that dies is given up after all tries, and others notice nothing.
func TestSimulatedTargetDies(t *testing.T) {
	a, b := dcHosts(t)
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1, AckTimeout: time.Millisecond})
	live, dead := b.target(t, dc.TargetConfig{}), b.target(t, dc.TargetConfig{})
	pl, pd := resolve(t, i, live, 0), resolve(t, i, dead, 0)
	do(t, i, pd, a.write(1, b, 0))
	require.NoError(t, simhca.Break("mlx5_1", dead.Address().QPN))
	_, err := i.Post(pd, a.write(2, b, 0), a.write(3, b, 0))
	require.NoError(t, err)
	for n := range uint64(20) {
		_, err := i.Post(pl, a.write(n, b, 0))
		require.NoError(t, err)
	}
	var got []dc.Completion
	for _, c := range wait(t, i, 22) {
		if c.Peer == pl {
			require.NoError(t, c.Err)
			continue
		}
		got = append(got, c)
	}
	require.ErrorIs(t, got[0].Err, verbs.WCRetryExceeded)
	require.ErrorIs(t, got[1].Err, dc.ErrSession)
}

// A DCI that breaks by itself comes back, whether it had something to do or not.
func TestSimulatedDCIBreaks(t *testing.T) {
	a, b := dcHosts(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for _, streams := range everyStreams {
		i := a.initiator(t, dc.InitiatorConfig{Contexts: 1, Streams: streams})
		p := resolve(t, i, b.target(t, dc.TargetConfig{}), 0)
		for range 3 {
			do(t, i, p, a.write(1, b, 0))
			require.NoError(t, simhca.Break("mlx5_0", i.DCI(0)))
			for err := errors.New("untried"); err != nil; {
				if err = i.Do(ctx, p, a.write(2, b, 0)); err != nil {
					require.ErrorIs(t, err, dc.ErrSession)
				}
			}
			require.NoError(t, simhca.Hold("mlx5_0", i.DCI(0), 5*time.Millisecond))
			_, err := i.Post(p, a.write(3, b, 0), a.write(4, b, 0))
			require.NoError(t, err)
			require.NoError(t, simhca.Break("mlx5_0", i.DCI(0)))
			for _, c := range wait(t, i, 2) {
				require.ErrorIs(t, c.Err, dc.ErrSession)
			}
		}
		do(t, i, p, a.write(5, b, 0))
		require.NoError(t, i.Close())
	}
}

// Whatever fails and breaks: each request ends once, one that succeeded was carried
// out once, and one that failed not at all, as the device has it here.
func TestSimulatedCounts(t *testing.T) {
	a, b := dcHosts(t)
	r := rand.New(rand.NewPCG(testseed.New(t), 0))
	for _, streams := range everyStreams {
		const targets, posters, each, faulty = 12, 4, 150, 100
		i := a.initiator(t, dc.InitiatorConfig{Contexts: 2, Depth: 8, Quota: 4, Streams: streams})
		clear(b.mr.Bytes()[:4096])
		var peers []*dc.Peer
		for range targets {
			peers = append(peers, resolve(t, i, b.target(t, dc.TargetConfig{}), 0))
		}
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		var all, faults sync.WaitGroup
		var mu sync.Mutex
		done := make([]uint64, targets)
		posted, failed := 0, 0
		over := make(chan struct{}) // no more faults
		for g := range posters {
			all.Go(func() {
				for k := 0; ; k++ {
					select {
					case <-over:
						if k >= each {
							return
						}
					default:
					}
					n := (g + k) % targets
					err := i.Do(ctx, peers[n], dc.Request{Op: dc.FetchAdd, Local: a.mr.SGE(8*g, 8), Remote: b.mr.Region().At(uint64(64 * n)), Value: 1})
					mu.Lock()
					posted++
					if err == nil {
						done[n]++
					} else {
						failed++
					}
					mu.Unlock()
				}
			})
		}
		faults.Go(func() {
			defer close(over)
			status := []verbs.WCStatus{verbs.WCRetryExceeded, verbs.WCRNRRetryExceeded, verbs.WCRemoteAccess, verbs.WCLocalProtection}
			for range faulty {
				time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
				dci := i.DCI(r.IntN(2))
				if r.IntN(4) == 0 {
					if err := simhca.Break("mlx5_0", dci); err != nil {
						t.Error(err)
					}
				} else if err := simhca.Fail("mlx5_0", dci, r.IntN(4), uint32(status[r.IntN(len(status))])); err != nil {
					t.Error(err)
				}
			}
		})
		all.Wait()
		faults.Wait()
		cancel()
		for n := range targets {
			require.Equal(t, done[n], verbs.Uint64(b.mr.Bytes(), 64*n), "target %d", n)
		}
		t.Logf("streams %d: %d of %d requests failed: %+v", streams, failed, posted, i.Stats())
		require.NotZero(t, failed)
		require.NoError(t, i.Close())
	}
}

// If a queue pair cannot be connected, the requests for which that was done fail, whichever
// call waits for them, and it is made anew.
func TestSimulatedConnectFails(t *testing.T) {
	a, b := dcHosts(t)
	a.backend, b.backend = dc.Software, dc.Software
	target := b.target(t, dc.TargetConfig{})
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1})
	p := resolve(t, i, target, 0)
	require.NoError(t, simhca.Break("mlx5_0", i.ContextQP(0)))
	done := make(chan error, 1)
	go func() { done <- i.Do(context.Background(), p, a.write(1, b, 0)) }()
	select {
	case err := <-done:
		require.Error(t, err)
		t.Log(err)
	case <-time.After(time.Minute):
		t.Fatal("Do waits for nothing")
	}
	do(t, i, p, a.write(2, b, 0))
}

// A session that breaks off is told once, with the peer and with why: whether a request
// of it failed, its queue pair here broke, or its target is gone. One that is left is not.
func TestSimulatedSessionLost(t *testing.T) {
	a, b := dcHosts(t)
	a.backend, b.backend = dc.Software, dc.Software
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 2, AckTimeout: time.Millisecond})
	target, other := b.target(t, dc.TargetConfig{Responders: 1}), b.target(t, dc.TargetConfig{})
	p, q := resolve(t, i, target, 0), resolve(t, i, other, 0)
	do(t, i, q, a.write(1, b, 0))
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	bad := a.write(2, b, 0)
	bad.Remote.RKey ^= 0xff00
	for name, fail := range map[string]func() (why error){
		"a request fails": func() error {
			_, err := i.Post(p, bad, a.write(3, b, 0), a.write(4, b, 0))
			require.NoError(t, err)
			cs := wait(t, i, 3)
			require.ErrorIs(t, cs[0].Err, verbs.WCRemoteAccess)
			require.ErrorIs(t, cs[2].Err, dc.ErrSession)
			return verbs.WCRemoteAccess
		},
		"a request of Do fails": func() error {
			require.ErrorIs(t, i.Do(ctx, p, bad), verbs.WCRemoteAccess)
			return verbs.WCRemoteAccess
		},
		"the queue pair breaks": func() error {
			for n := range 2 {
				require.NoError(t, simhca.Hold("mlx5_0", i.ContextQP(n), 20*time.Millisecond))
			}
			_, err := i.Post(p, a.write(3, b, 0), a.write(4, b, 0))
			require.NoError(t, err)
			for n := range 2 {
				if i.Serves(n) == p {
					require.NoError(t, simhca.Break("mlx5_0", i.ContextQP(n)))
				}
			}
			for _, c := range wait(t, i, 2) {
				require.ErrorIs(t, c.Err, dc.ErrSession)
			}
			return dc.ErrSession
		},
		"the target's queue pair breaks": func() error {
			require.NoError(t, simhca.Break("mlx5_1", target.Responder(0).Num()))
			_, err := i.Post(p, a.write(3, b, 0))
			require.NoError(t, err)
			require.ErrorIs(t, wait(t, i, 1)[0].Err, verbs.WCRetryExceeded)
			return verbs.WCRetryExceeded
		},
	} {
		for range 3 {
			do(t, i, p, a.write(1, b, 0))
			require.Empty(t, i.Events(), name)
			why := fail()
			select {
			case e := <-i.Events():
				require.Equal(t, dc.EventSessionLost, e.Kind, name)
				require.Same(t, p, e.Peer)
				require.ErrorIs(t, e.Err, why, name)
			case <-ctx.Done():
				t.Fatal("nothing is told: ", name)
			}
		}
	}
	do(t, i, p, a.write(5, b, 0))
	do(t, i, q, a.write(5, b, 0))
	require.NoError(t, i.Detach(p))
	do(t, i, p, a.write(6, b, 0))
	require.NoError(t, i.Forget(p))
	require.NoError(t, i.Close())
	require.Empty(t, i.Events(), "the others were left")
	require.EqualValues(t, 1, other.Stats().Attaches)
}

// The software back end's last words leave the device before their queue pair goes.
func TestSimulatedLastWords(t *testing.T) {
	a, b := dcHosts(t)
	a.backend, b.backend = dc.Software, dc.Software
	target := b.target(t, dc.TargetConfig{})
	for range 20 {
		i := a.initiator(t, dc.InitiatorConfig{Contexts: 1})
		do(t, i, resolve(t, i, target, 0), a.write(1, b, 0))
		require.NoError(t, i.Close())
		require.Eventually(t, func() bool { return target.Stats().Live == 0 }, time.Minute, time.Millisecond)
	}
}

// When the device of an initiator or of a target is removed, what is under way ends, all
// calls that wait return, and both can be closed.
func TestSimulatedRemoval(t *testing.T) {
	if which := os.Getenv("SIMHCA_REMOVE"); which != "" {
		removal(t, which)
		return
	}
	dcHosts(t)
	for _, which := range []string{"hardware mlx5_0", "hardware mlx5_1", "software mlx5_0", "software mlx5_1"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSimulatedRemoval$", "-test.v", "-test.timeout=20s")
		cmd.Env = append(os.Environ(), "SIMHCA_REMOVE="+which)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", which, out)
		require.Contains(t, string(out), "--- PASS: TestSimulatedRemoval")
	}
}

func removal(t *testing.T, which string) {
	a, b := dcHosts(t)
	backend, device, _ := strings.Cut(which, " ")
	if backend == "software" {
		a.backend, b.backend = dc.Software, dc.Software
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1, AckTimeout: time.Millisecond})
	target := b.target(t, dc.TargetConfig{Receives: 8})
	p := resolve(t, i, target, 0)
	do(t, i, p, a.write(1, b, 0))
	waits := make(chan error)
	go func() {
		_, err := target.Wait(ctx, make([]dc.Received, 1))
		waits <- err
	}()
	if i.Hardware() {
		require.NoError(t, simhca.Hold("mlx5_0", i.DCI(0), 20*time.Millisecond))
	}
	_, err := i.Post(p, a.write(2, b, 0))
	require.NoError(t, err)
	time.Sleep(5 * time.Millisecond)
	require.NoError(t, simhca.Remove(device))
	if device == "mlx5_0" || i.Hardware() {
		for begun := time.Now(); time.Since(begun) < 5*time.Second; {
			_, err := i.Post(p, a.write(3, b, 0))
			var cs [4]dc.Completion
			if err == nil {
				_, err = i.Wait(ctx, cs[:])
			}
			if err != nil || cs[0].Err != nil && cs[0].ID > 1 {
				t.Log(err, cs[0].Err)
				break
			}
		}
		require.NoError(t, ctx.Err())
	}
	if device == "mlx5_1" {
		require.Error(t, <-waits)
		require.NoError(t, ctx.Err(), "told, and not by the end of its time")
	}
	cancel()
	if device == "mlx5_0" {
		<-waits
	}
	begun := time.Now()
	require.NoError(t, i.Close())
	require.NoError(t, target.Close())
	require.Less(t, time.Since(begun), 5*time.Second)
}

// Sessions that were asked for and have nothing to do, or only a request that was taken back,
// do not keep others from the only context.
func TestSimulatedNothingToDo(t *testing.T) {
	a, b := dcHosts(t)
	a.backend, b.backend = dc.Software, dc.Software
	i := a.initiator(t, dc.InitiatorConfig{Contexts: 1})
	var peers []*dc.Peer
	for range 3 {
		peers = append(peers, resolve(t, i, b.target(t, dc.TargetConfig{}), 0))
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for n := range 30 {
		p, q := peers[n%3], peers[(n+1)%3]
		var all sync.WaitGroup
		if n%2 == 0 {
			all.Go(func() {
				if err := i.Attach(ctx, p); err != nil {
					t.Error(err)
				}
			})
		} else {
			short, end := context.WithTimeout(ctx, time.Duration(n)*10*time.Microsecond)
			all.Go(func() {
				defer end()
				if err := i.Do(short, p, a.write(1, b, 0)); err != nil && short.Err() == nil {
					t.Error(err)
				}
			})
		}
		for range n % 5 {
			runtime.Gosched()
		}
		if err := i.Do(ctx, q, a.write(2, b, 0)); err != nil {
			t.Fatal("the other one waits for nothing: ", err)
		}
		all.Wait()
	}
}
