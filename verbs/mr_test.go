//go:build linux

package verbs_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// Read-only memory can be sent and read by peers.
func TestReadOnlyMemory(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	buf, err := unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	defer unix.Munmap(buf)
	copy(buf[100:], "written before")
	require.NoError(t, unix.Mprotect(buf, unix.PROT_READ))

	_, err = b.PD.RegisterMR(buf, verbs.MRConfig{Access: verbs.RemoteWrite, ReadOnly: true})
	require.ErrorIs(t, err, verbs.ErrAttributes)
	_, err = b.PD.RegisterMR(buf, verbs.MRConfig{Access: verbs.RemoteRead})
	require.ErrorContains(t, err, "see MRConfig.ReadOnly", "the device would have to be allowed to write")
	mr, err := b.PD.RegisterMR(buf, verbs.MRConfig{Access: verbs.RemoteRead, ReadOnly: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, mr.Close()) }()

	// A file of constants, which Linux 6.1 refuses.
	file, err := os.Open("mr_test.go")
	require.NoError(t, err)
	defer file.Close()
	shared, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	defer unix.Munmap(shared)
	if constants, err := b.PD.RegisterMR(shared, verbs.MRConfig{Access: verbs.RemoteRead, ReadOnly: true}); err == nil {
		require.NoError(t, constants.Close())
	} else {
		require.ErrorContains(t, err, "which Linux takes from 6.2 on")
	}

	batch := a.Batch(t, 1)
	batch.Read(1, verbs.Signaled, mr.Region().At(100), a.MR.SGE(0, 14))
	a.Do(t, batch, 1)
	require.Equal(t, "written before", string(a.MR.Bytes()[:14]))

	a.Recv(t, 1, 64)
	send := b.Batch(t, 1)
	send.Send(2, verbs.Signaled, mr.SGE(100, 14))
	b.Do(t, send, 1)
	require.NoError(t, a.Wait(t, 1)[0].Err())

	send.Read(3, verbs.Signaled, a.MR.Region().At(0), mr.SGE(0, 8))
	_, err = send.Post()
	require.NoError(t, err)
	require.Error(t, b.Wait(t, 1)[0].Err(), "a READ into it")
	require.Equal(t, "written before", string(mr.Bytes()[100:114]))
}

// A region can be named by an address of the program's choice.
func TestRegionAtChosenAddress(t *testing.T) {
	a, b := rig.NewPair(t, verbs.QPConfig{}, verbs.CQConfig{}, verbs.ConnectConfig{})
	const at = 0x10000
	mr, err := b.PD.AllocMR(8192, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteAtomic, Addr: at})
	require.NoError(t, err)
	defer func() { require.NoError(t, mr.Close()) }()
	require.EqualValues(t, at, mr.Region().Addr)
	require.NoError(t, mr.Store64(4096, 41))
	batch := a.Batch(t, 2)
	batch.FetchAdd(1, verbs.Signaled, verbs.Remote{Addr: at + 4096, RKey: mr.Region().RKey}, 1, a.MR.SGE(0, 8))
	a.Do(t, batch, 1)
	batch.Read(2, verbs.Signaled, mr.Region().At(4096), a.MR.SGE(8, 8))
	a.Do(t, batch, 1)
	require.EqualValues(t, 42, verbs.Uint64(a.MR.Bytes(), 8))
	a.Recv(t, 1, 64)
	send := b.Batch(t, 1)
	send.Send(3, verbs.Signaled, mr.SGE(4096, 8))
	b.Do(t, send, 1)
	require.NoError(t, a.Wait(t, 1)[0].Err())
	require.EqualValues(t, 42, verbs.Uint64(a.MR.Bytes(), 0))

	_, err = b.PD.AllocMR(8192, verbs.MRConfig{Addr: at + 8})
	require.ErrorIs(t, err, verbs.ErrAttributes, "it lies in its page otherwise than the memory does")
	_, err = b.PD.AllocMR(8192, verbs.MRConfig{Addr: 0xfffffffffffff000})
	require.ErrorIs(t, err, verbs.ErrAttributes, "it wraps around")
}
