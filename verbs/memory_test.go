//go:build linux && cgo

package verbs

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cgo/standin"
)

// TestMoveTo: rights go with a change of rights alone.
func TestMoveTo(t *testing.T) {
	d, p, _, _ := driverRig(t)
	mr, err := p.AllocMR(4096, MRConfig{Access: RemoteRead})
	require.NoError(t, err)
	second, err := d.AllocPD()
	require.NoError(t, err)
	standin.Recorded()
	require.NoError(t, mr.MoveTo(second))
	require.NoError(t, mr.SetAccess(RemoteWrite))
	recorded(t, `
		ibv_rereg_mr flags=2 pd=1 access=0
		ibv_rereg_mr flags=4 pd=0 access=0x3`)
	require.ErrorIs(t, second.Close(), ErrInUse)
	require.NoError(t, mr.Close())
	require.NoError(t, second.Close())
}

// collect returns when finalizers of what is unreachable now have run.
func collect() {
	for range 2 {
		ran := make(chan struct{})
		runtime.SetFinalizer(new([64]byte), func(*[64]byte) { close(ran) })
		for over := false; !over; {
			runtime.GC()
			select {
			case <-ran:
				over = true
			case <-time.After(time.Millisecond):
			}
		}
	}
}

// A region that the program forgets stays registered, counted by its protection domain;
// it does not end the process.
func TestForgottenRegion(t *testing.T) {
	_, p, _, _ := driverRig(t)
	func() {
		_, err := p.RegisterMR(make([]byte, 4096), MRConfig{})
		require.NoError(t, err)
	}()
	collect()
	err := p.Close()
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, "1 mr")
}

// What is closed, or was refused, is forgotten.
func TestPinsOfRegions(t *testing.T) {
	_, p, _, _ := driverRig(t)
	m, err := p.RegisterMR(make([]byte, 4096), MRConfig{})
	require.NoError(t, err)
	before := pinned()
	require.NoError(t, m.Close())
	require.Equal(t, before-1, pinned(), "nothing is kept of a closed one")
	standin.Refuse("reg_mr", syscall.ENOMEM)
	_, err = p.RegisterMR(make([]byte, 4096), MRConfig{})
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.Equal(t, before-1, pinned())
}

func pinned() (n int) {
	pins.Range(func(any, any) bool { n++; return true })
	return n
}

// ENOMEM is blamed on the limit of locked memory only where that applies: not to a process
// with CAP_IPC_LOCK.
func TestMemlockOfThePrivileged(t *testing.T) {
	var l unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l))
	if l.Cur == unix.RLIM_INFINITY || !locksAll() {
		t.Skip("needs a limit, and CAP_IPC_LOCK, which makes it void")
	}
	err := registerError("pd 1", 4096, false, syscall.ENOMEM)
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.NotErrorIs(t, err, ErrMemlock)
}

// A message that the port does not take is refused with all that is in the batch: posted,
// it would end the queue pair. A receive may be longer.
func TestMessagesThatAreTooLong(t *testing.T) {
	const longest = 1 << 30 // of the stand-in's port
	_, p, c, _ := driverRig(t)
	q, err := p.CreateQP(QPConfig{Extended: true, SendCQ: c, GID: linkGID, MaxSendSGE: 3})
	require.NoError(t, err)
	require.NoError(t, q.Connect(Endpoint{Type: RC, QPN: 0x99, GID: standinPeer, MTU: MTU4096}, ConnectConfig{}))
	b, err := q.NewBatch(4)
	require.NoError(t, err)
	post := func(sges ...SGE) error {
		b.Write(1, 0, wordAt, sges...)
		_, err := b.Post()
		return err
	}
	require.NoError(t, post(SGE{Length: longest}))
	require.NoError(t, post(SGE{Length: longest - 1}, SGE{Length: 1}))
	for _, sges := range [][]SGE{
		{{Length: longest + 1}},
		{{Length: longest}, {Length: 1}},
		{{Length: 1 << 31}, {Length: 1 << 31}, {Length: 1 << 31}},
		{longSGE},
	} {
		b.Read(2, 0, wordAt, wordSGE)
		err := post(sges...)
		require.ErrorIs(t, err, ErrTooLarge)
		require.Zero(t, b.Len())
	}
	require.ErrorContains(t, post(SGE{Length: longest + 1}), "1073741825 bytes; the port takes 1073741824")
	require.ErrorIs(t, post(SGE{Length: 8}, badSGE), ErrRange)
	require.ErrorIs(t, post(SGE{Length: 8}, closedSGE), ErrClosed)
	m := &MR{size: 1 << 33}
	require.Equal(t, longSGE, m.SGE(0, 1<<31+1), "it is inside")
	require.ErrorContains(t, post(m.SGE(1<<33-4, 8)), "outside the memory region (local memory: offset 8589934588, length 8)")
	require.ErrorContains(t, post(m.SGE(-1, 8)), "offset -1, length 8")
	require.ErrorContains(t, post(m.SGE(4, 1<<40)), "offset 4, length 2147483647 or more")
	require.ErrorContains(t, post(badSGE), "(local memory: of another region, or not registered)")

	recv, err := q.NewRecvBatch(1)
	require.NoError(t, err)
	recv.Recv(1, SGE{Length: longest + 1})
	_, err = recv.Post()
	require.NoError(t, err)

	r, err := NewRequester(q, RequesterConfig{})
	require.NoError(t, err)
	require.ErrorIs(t, r.Write(t.Context(), wordAt, SGE{Length: longest + 1}), ErrTooLarge)
	require.ErrorIs(t, r.Do(t.Context(), ReadWR(wordAt, SGE{Length: longest + 1})), ErrTooLarge)
	require.NoError(t, q.Err())
	require.NoError(t, r.Close())
}
