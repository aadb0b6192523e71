//go:build linux

package stream_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs/internal/rig"
	"github.com/goverbs/goverbs/verbs/stream"
)

// Streams that come and go leave nothing: no memory, no descriptors, no RDMA
// objects. GOVERBS_CONNECTS says how many; 100,000 take hours on an emulated
// machine.
func TestStreamsComeAndGo(t *testing.T) {
	const warm = 20
	n := 2000
	if testing.Short() {
		n = 60
	}
	if s := os.Getenv("GOVERBS_CONNECTS"); s != "" {
		var err error
		n, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	p := rig.CMPorts(t)
	m, ctx := rig.NewCM(t), t.Context()
	var cfg stream.Config
	if n > 10_000 {
		cfg.Buffer, cfg.Messages = 16<<10, 8 // registering the usual ones is most of a stream's time
	}
	cfg.Dial.Local = netip.AddrPortFrom(p[0].Addr(), 0)
	turn := func(l *stream.Listener, i int) error {
		s, err := stream.Dial(ctx, m, l.Addr().String(), cfg)
		if err != nil {
			return err
		}
		c, err := l.Accept()
		if err != nil {
			return errors.Join(err, s.Close())
		}
		_, err = s.Write([]byte("hello"))
		if err == nil {
			_, err = c.Read(make([]byte, 5))
		}
		if i%2 == 0 { // either side may be the first to go
			return errors.Join(err, s.Close(), c.Close())
		}
		return errors.Join(err, c.Close(), s.Close())
	}
	// As many at once as there are CPUs, each with a listener of its own.
	listeners := make([]*stream.Listener, runtime.GOMAXPROCS(0))
	for i := range listeners {
		l, err := stream.Listen(m, p[1].Addr().String()+":0", cfg)
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
		listeners[i] = l
	}
	run := func(turns int) {
		var done atomic.Int64
		errs := make(chan error, len(listeners))
		for _, l := range listeners {
			go func() {
				for {
					i := int(done.Add(1))
					if i > turns {
						errs <- nil
						return
					}
					if err := turn(l, i); err != nil {
						errs <- fmt.Errorf("turn %d: %w", i, err)
						return
					}
					if turns > 10_000 && i%5_000 == 0 {
						t.Logf("%d streams: %d MiB resident, %d descriptors", i, resident(t)>>20, descriptors(t))
					}
				}
			}()
		}
		for range listeners {
			require.NoError(t, <-errs)
		}
	}
	run(warm)
	before, files := resident(t), descriptors(t)
	now, stop := context.WithCancel(ctx)
	stop()
	objects, err := lab.Leftovers(now)
	require.NoError(t, err)
	start := time.Now()
	run(n)
	t.Logf("%d streams in %v", n, time.Since(start).Round(time.Millisecond))

	// A goroutine that waits on a file while it is closed closes it when it has woken.
	require.Eventually(t, func() bool { return descriptors(t) <= files }, time.Minute, time.Millisecond, "descriptors")
	soon, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	left, err := lab.Leftovers(soon, objects...)
	require.NoError(t, err)
	require.Empty(t, left, "RDMA objects")
	// However many there were. Each has 2 MiB of buffers on each side, and some
	// 50 KiB of queues; the heap's own unrest is a few MiB.
	after := resident(t)
	t.Logf("resident memory: %d KiB, then %d KiB", before>>10, after>>10)
	if !raceDetector { // its own memory grows with the goroutines it has seen
		require.Less(t, after, before+(16<<20), "resident memory")
	}
}

// resident is the memory of this process after a collection.
func resident(t *testing.T) int {
	t.Helper()
	runtime.GC()
	runtime.GC() // what cleanups freed
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	require.NoError(t, err)
	return pages * os.Getpagesize()
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}
