//go:build linux && cgo

package verbs

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

func TestDeviceMemory(t *testing.T) {
	d, p, _, _ := driverRig(t)
	m, err := d.allocDeviceMemory(4096, 64)
	require.NoError(t, err)
	require.NoError(t, m.CopyIn(8, []byte("a lock..")))
	got := make([]byte, 8)
	require.NoError(t, m.CopyOut(got, 8))
	require.Equal(t, "a lock..", string(got))
	mr, err := p.registerDeviceMemory(m, 1024, 512, MRConfig{Access: RemoteRead | RemoteAtomic})
	require.NoError(t, err)
	recorded(t, `
		ibv_alloc_dm length=4096 log_align=6 mask=0
		memcpy_to_dm offset=8 length=8
		memcpy_from_dm offset=8 length=8
		ibv_reg_dm_mr offset=1024 length=512 access=0x2d`)

	require.Equal(t, Region{Addr: 0, Length: 512, RKey: 4}, mr.Region(), "addresses begin with 0")
	require.Equal(t, SGE{Addr: 16, Length: 8, LKey: 3}, mr.SGE(16, 8))
	require.Equal(t, badSGE.Length, mr.SGE(510, 4).Length)
	require.Nil(t, mr.Bytes())

	require.ErrorIs(t, m.Close(), ErrInUse)
	require.ErrorIs(t, p.Close(), ErrInUse)
	require.NoError(t, mr.Close())
	require.ErrorIs(t, d.Close(), ErrInUse)
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	require.ErrorIs(t, m.CopyIn(0, got), ErrClosed)
	recorded(t, `
		ibv_free_dm`)
}

// TestDeviceMemoryRefusals: after any of them nothing lives on the device.
func TestDeviceMemoryRefusals(t *testing.T) {
	d, p, _, _ := driverRig(t)
	for _, bad := range [][2]int{{0, 0}, {-1, 0}, {64, 3}, {64, -4}} {
		_, err := d.allocDeviceMemory(bad[0], bad[1])
		require.ErrorIs(t, err, ErrAttributes)
	}
	_, err := d.allocDeviceMemory(1<<20, 0)
	require.ErrorIs(t, err, ErrAttributes)
	require.ErrorContains(t, err, "1048576 bytes")
	standin.Refuse("ibv_alloc_dm", syscall.EOPNOTSUPP)
	_, err = d.allocDeviceMemory(64, 0)
	require.ErrorIs(t, err, ErrUnsupported)

	m, err := d.allocDeviceMemory(64, 0)
	require.NoError(t, err)
	require.ErrorIs(t, m.CopyIn(60, make([]byte, 8)), ErrRange)
	require.ErrorIs(t, m.CopyOut(make([]byte, 8), -8), ErrRange)
	require.ErrorIs(t, m.CopyIn(2, make([]byte, 4)), ErrAttributes)
	require.NoError(t, m.CopyIn(64, nil))
	standin.Recorded()
	for _, c := range []struct {
		off, length int
		cfg         MRConfig
		err         error
	}{
		{0, 65, MRConfig{}, ErrRange},
		{32, 33, MRConfig{}, ErrRange},
		{0, 0, MRConfig{}, ErrRange},
		{0, 64, MRConfig{Addr: 4096}, ErrAttributes},
		{0, 64, MRConfig{Access: onDemand}, ErrAttributes},
		{0, 64, MRConfig{Access: BindWindow}, ErrAttributes},
		{0, 64, MRConfig{Access: RemoteWrite, ReadOnly: true}, ErrAttributes},
	} {
		_, err := p.registerDeviceMemory(m, c.off, c.length, c.cfg)
		require.ErrorIs(t, err, c.err, "%+v", c)
	}
	require.Empty(t, standin.Recorded(), "refused before the device is asked")
	standin.Refuse("ibv_reg_dm_mr", syscall.EOPNOTSUPP)
	_, err = p.registerDeviceMemory(m, 0, 64, MRConfig{})
	require.ErrorIs(t, err, ErrUnsupported)
	require.NoError(t, m.Close())
}

func TestNullMR(t *testing.T) {
	_, p, _, _ := driverRig(t)
	m, err := p.allocNullMR()
	require.NoError(t, err)
	require.Equal(t, SGE{Length: 1 << 20, LKey: 0x700}, m.SGE(0, 1<<20))
	require.Nil(t, m.Bytes())
	require.Equal(t, badSGE, m.sgeOf(make([]byte, 8)))
	require.ErrorIs(t, p.Close(), ErrInUse)
	require.NoError(t, m.Close())
	standin.Refuse("ibv_alloc_null_mr", syscall.ENOTSUP)
	_, err = p.allocNullMR()
	require.ErrorIs(t, err, ErrUnsupported)
}
