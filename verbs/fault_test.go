//go:build linux

package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// Each wrong access at the peer gives its own status, and flushes the rest.
func TestWrongRemoteAccess(t *testing.T) {
	for _, c := range []struct {
		name string
		op   func(a, b *rig.Side, batch *verbs.Batch)
		want []verbs.WCStatus
	}{
		{"wrong rkey", func(a, b *rig.Side, batch *verbs.Batch) {
			r := b.MR.Region()
			r.RKey ^= 0x5a5a00
			batch.Read(1, verbs.Signaled, r.At(0), a.MR.SGE(0, 8))
		}, []verbs.WCStatus{verbs.WCRemoteAccess}},
		{"beyond the end", func(a, b *rig.Side, batch *verbs.Batch) {
			batch.Write(1, verbs.Signaled, b.MR.Region().At(rig.BufSize-4), a.MR.SGE(0, 8))
		}, []verbs.WCStatus{verbs.WCRemoteAccess}},
		{"before the start", func(a, b *rig.Side, batch *verbs.Batch) {
			r := b.MR.Region()
			batch.Read(1, verbs.Signaled, verbs.Remote{Addr: r.Addr - 8, RKey: r.RKey}, a.MR.SGE(0, 8))
		}, []verbs.WCStatus{verbs.WCRemoteAccess}},
		{"wrong local key", func(a, b *rig.Side, batch *verbs.Batch) {
			s := a.MR.SGE(0, 8)
			s.LKey ^= 0x5a5a00
			batch.Write(1, verbs.Signaled, b.MR.Region().At(0), s)
			// The first is the specification's. rxe of Linux 6.1 says the second;
			// that of 6.12 enters the error state first, and then flushes the
			// culprit with all others.
		}, []verbs.WCStatus{verbs.WCLocalProtection, verbs.WCLocalQPOperation, verbs.WCFlushed}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
			batch := a.Batch(t, 2)
			c.op(a, b, batch)
			batch.Write(2, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
			_, err := batch.Post()
			require.NoError(t, err)
			wcs := a.Wait(t, 2)
			err = wcs[0].Err()
			require.Contains(t, c.want, wcs[0].Status())
			require.ErrorIs(t, err, wcs[0].Status())
			var wce *verbs.WCError
			require.True(t, errors.As(err, &wce))
			require.Equal(t, a.QP.Num(), wce.QPNum)
			require.EqualValues(t, 1, wce.ID)
			require.ErrorIs(t, wcs[1].Err(), verbs.WCFlushed)
			q, err := a.QP.Query()
			require.NoError(t, err)
			require.Equal(t, verbs.StateError, q.State)
		})
	}
}

// A region without the right refuses although the rkey is right.
func TestAccessRights(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	ro, err := b.PD.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteRead})
	require.NoError(t, err)
	defer func() { require.NoError(t, ro.Close()) }()
	batch := a.Batch(t, 1)
	batch.Read(1, verbs.Signaled, ro.Region().At(0), a.MR.SGE(0, 8))
	a.Do(t, batch, 1)
	batch.Write(2, verbs.Signaled, ro.Region().At(0), a.MR.SGE(0, 8))
	_, err = batch.Post()
	require.NoError(t, err)
	require.ErrorIs(t, a.Wait(t, 1)[0].Err(), verbs.WCRemoteAccess)
}

// After Close an rkey that a peer still has is dead.
func TestClosedRegionIsGoneForPeers(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	mr, err := b.PD.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteRead})
	require.NoError(t, err)
	region := mr.Region()
	require.NoError(t, mr.Close())
	batch := a.Batch(t, 1)
	batch.Read(1, verbs.Signaled, region.At(0), a.MR.SGE(0, 8))
	_, err = batch.Post()
	require.NoError(t, err)
	require.ErrorIs(t, a.Wait(t, 1)[0].Err(), verbs.WCRemoteAccess)
}

func TestReceiverNotReady(t *testing.T) {
	conn := verbs.ConnectConfig{RNRRetries: 2, RNRTimer: 10 * time.Microsecond}
	a, _ := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, conn)
	batch := a.Batch(t, 1)
	batch.Send(1, verbs.Signaled, a.MR.SGE(0, 8))
	_, err := batch.Post()
	require.NoError(t, err)
	require.ErrorIs(t, a.Wait(t, 1)[0].Err(), verbs.WCRNRRetryExceeded)
}

// With retries without end, a receive that is posted late is no error.
func TestReceiverReadyLate(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{RNRTimer: time.Millisecond})
	batch := a.Batch(t, 1)
	batch.Send(1, verbs.Signaled, a.MR.SGE(0, 8))
	_, err := batch.Post()
	require.NoError(t, err)
	time.Sleep(5 * time.Millisecond)
	b.Recv(t, 1, 64)
	wcs := a.Wait(t, 1)
	require.NoError(t, wcs[0].Err())
	wcs = b.Wait(t, 1)
	require.NoError(t, wcs[0].Err())
}

// A message longer than the receive hurts both sides, each in its own way.
func TestMessageLongerThanTheReceive(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	b.Recv(t, 1, 16)
	batch := a.Batch(t, 1)
	batch.Send(1, verbs.Signaled, a.MR.SGE(0, 64))
	_, err := batch.Post()
	require.NoError(t, err)
	// The first is the specification's, the second what rxe says.
	require.Contains(t, []verbs.WCStatus{verbs.WCRemoteInvalid, verbs.WCRemoteOperation}, a.Wait(t, 1)[0].Status())
	require.Error(t, b.Wait(t, 1)[0].Err())
}

// A peer that is gone shows within the configured time.
func TestDeadPeer(t *testing.T) {
	conn := verbs.ConnectConfig{AckTimeout: 8 * time.Millisecond, Retries: 3}
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, conn)
	require.NoError(t, b.QP.Close()) // its device does not respond for a queue pair that is gone
	batch := a.Batch(t, 1)
	batch.Write(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 8))
	start := time.Now()
	_, err := batch.Post()
	require.NoError(t, err)
	wc := a.Wait(t, 1)[0]
	require.ErrorIs(t, wc.Err(), verbs.WCRetryExceeded)
	// Four transmissions; devices may take up to four times the timeout each.
	require.Less(t, time.Since(start), 4*4*16*time.Millisecond+2*time.Second)
}

// overruns is called before completions pile up, and returns a function that waits until there
// are too many: polling before would make room.
func overruns(t *testing.T, s *rig.Side) (wait func()) {
	t.Helper()
	events := s.Dev.Events(rig.Context(t))
	return func() {
		t.Helper()
		for ev := range events {
			if ev.Type == verbs.EventCQError && ev.CQ == s.CQ {
				return
			}
		}
		t.Fatal("the queue does not overrun")
	}
}

// Leaving a full completion queue unread breaks it, and says so.
func TestCompletionQueueOverrun(t *testing.T) {
	p := rig.Ports(t)
	a := rig.NewSide(t, p[0], verbs.QPConfig{MaxSendWR: 256}, verbs.CQConfig{Depth: 8})
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
	ctx, cancel := context.WithTimeout(context.Background(), rig.Timeout)
	defer cancel()
	overrun()
	var wcs [4]verbs.WC
	got := 0
	for {
		n, err := a.CQ.Wait(ctx, wcs[:])
		got += n
		if err != nil {
			require.ErrorIs(t, err, verbs.ErrOverrun)
			break
		}
	}
	require.Less(t, got, 64)
	require.GreaterOrEqual(t, got, 8, "what was in the queue can still be read")
}

func TestSendQueueFull(t *testing.T) {
	// A peer that is gone and a long timeout: nothing completes meanwhile.
	a, b := rig.NewPair(t, verbs.QPConfig{MaxSendWR: 4}, verbs.CQConfig{}, verbs.ConnectConfig{AckTimeout: 4 * time.Second})
	require.NoError(t, b.QP.Close())
	batch := a.Batch(t, a.QP.MaxSendWR())
	posted := 0
	var err error
	for err == nil && posted < 10_000 {
		for range batch.Cap() {
			batch.Write(7, 0, b.MR.Region().At(0), a.MR.SGE(0, 8))
		}
		var n int
		n, err = batch.Post()
		posted += n
	}
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.GreaterOrEqual(t, posted, 4)
}

func TestErrorStateFlushes(t *testing.T) {
	a, _ := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	a.Recv(t, 5, 64)
	require.NoError(t, a.QP.ToError())
	for _, wc := range a.Wait(t, 5) {
		require.ErrorIs(t, wc.Err(), verbs.WCFlushed)
	}
	batch := a.Batch(t, 1)
	batch.Send(9, verbs.Signaled, a.MR.SGE(0, 8))
	_, err := batch.Post()
	require.NoError(t, err, "posting to a queue pair in error is allowed")
	require.ErrorIs(t, a.Wait(t, 1)[0].Err(), verbs.WCFlushed)
}

// Closing while others post and poll: an error for them, no crash, no hang.
func TestCloseUnderLoad(t *testing.T) {
	for i := range 10 {
		t.Run(fmt.Sprint(i), closeUnderLoad)
	}
}

func closeUnderLoad(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	var wg sync.WaitGroup
	for range 2 {
		batch := a.Batch(t, 1)
		wg.Go(func() {
			for {
				batch.Write(1, verbs.Signaled, b.MR.Region().At(0), a.MR.SGE(0, 64))
				if _, err := batch.Post(); errors.Is(err, verbs.ErrClosed) {
					return
				}
				runtime.Gosched()
			}
		})
		wg.Go(func() {
			wcs := make([]verbs.WC, 8)
			for {
				if _, err := a.CQ.Poll(wcs); err != nil {
					return
				}
				runtime.Gosched()
			}
		})
	}
	time.Sleep(5 * time.Millisecond)
	require.NoError(t, a.QP.Close())
	require.NoError(t, a.CQ.Close())
	wg.Wait()
}

// With the memory limit of an ordinary user the error says what to raise.
func TestMemlockLimit(t *testing.T) {
	p := rig.Ports(t)
	s := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	if os.Geteuid() != 0 {
		t.Skip("needs root, to lower the limit and to come back")
	}
	// The limit does not bind a process with CAP_IPC_LOCK; it is this thread's
	// capabilities that count.
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- func() error {
			var old unix.Rlimit
			if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
				return err
			}
			defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)
			if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: old.Max}); err != nil {
				return err
			}
			hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var data [2]unix.CapUserData
			if err := unix.Capget(&hdr, &data[0]); err != nil {
				return err
			}
			data[0].Effective &^= 1 << unix.CAP_IPC_LOCK
			if err := unix.Capset(&hdr, &data[0]); err != nil {
				return err
			}
			mr, err := s.PD.AllocMR(16<<20, verbs.MRConfig{})
			if err == nil {
				return errors.Join(errors.New("registered beyond the limit"), mr.Close())
			}
			return err
		}()
	}()
	err := <-done
	require.ErrorIs(t, err, verbs.ErrMemlock)
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.True(t, strings.Contains(err.Error(), "ulimit -l unlimited"), err)
}

func TestHugePages(t *testing.T) {
	p := rig.Ports(t)
	s := rig.NewSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{})
	mr, err := s.PD.AllocMR(3<<20, verbs.MRConfig{Pages: verbs.PagesTryHuge})
	require.NoError(t, err, "falls back to normal pages")
	require.Equal(t, 3<<20, mr.Len())
	require.NoError(t, mr.Close())
	mr, err = s.PD.AllocMR(3<<20, verbs.MRConfig{Pages: verbs.PagesHuge})
	if err != nil {
		require.ErrorContains(t, err, "nr_hugepages")
		return
	}
	require.NoError(t, mr.Close())
}
