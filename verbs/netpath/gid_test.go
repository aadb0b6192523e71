package netpath

import (
	"context"
	"io/fs"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// sysfs are the files of GID tables. A free entry reads as zeros, and its
// attributes are refused with EINVAL, as the kernel does it.
type sysfs struct {
	fstest.MapFS
	read int
}

func (s *sysfs) ReadFile(name string) ([]byte, error) {
	s.read++
	b, err := fs.ReadFile(s.MapFS, name)
	if err == nil && len(b) == 0 {
		return nil, &fs.PathError{Op: "read", Path: name, Err: syscall.EINVAL}
	}
	return b, err
}

func (s *sysfs) add(port string, gids ...[3]string) {
	for i, g := range gids {
		for k, file := range []string{"gids", "gid_attrs/types", "gid_attrs/ndevs"} {
			text := g[k]
			if text != "" {
				text += "\n"
			}
			s.MapFS[port+"/"+file+"/"+strconv.Itoa(i)] = &fstest.MapFile{Data: []byte(text)}
		}
	}
}

const (
	v1, v2 = "IB/RoCE v1", "RoCE v2"
	linkV6 = "fe80:0000:0000:0000:0000:0000:0000:0001"
	free   = "0000:0000:0000:0000:0000:0000:0000:0000"
	ten1   = "0000:0000:0000:0000:0000:ffff:0a00:0001"
	ten2   = "0000:0000:0000:0000:0000:ffff:0a00:0002"
)

func table() *sysfs {
	s := &sysfs{MapFS: fstest.MapFS{}}
	s.add("mlx5_0/ports/1",
		[3]string{linkV6, v1, "eth0"},
		[3]string{linkV6, v2, "eth0"},
		[3]string{free, "", ""},
		[3]string{ten1, v2, "eth1"}, // the same address elsewhere
		[3]string{ten1, v1, "eth0"},
		[3]string{ten1, v2, "eth0"},
		[3]string{ten2, v1, "eth0"},
		[3]string{linkV6, v2, ""}, // its netdev is just going
		[3]string{"", "", ""},
		[3]string{free, "", ""},
	)
	s.add("mlx4_0/ports/1", [3]string{free, "", ""})
	s.add("mlx4_0/ports/2", [3]string{"fe80:0000:0000:0000:0000:0000:0000:0009", v1, ""})
	return s
}

func TestFindGID(t *testing.T) {
	find := func(device, netdev string, port uint8, addr string) (GID, error) {
		return findGID(t.Context(), table(), Netdev{Name: netdev, Device: device, Port: port}, netip.MustParseAddr(addr))
	}
	for _, c := range []struct {
		netdev, addr string
		port         uint8
		index        int
		v2           bool
	}{
		{"eth0", "10.0.0.1", 1, 5, true},
		{"eth0", "::ffff:10.0.0.1", 1, 5, true},
		{"eth1", "10.0.0.1", 1, 3, true},
		{"eth0", "10.0.0.1", 0, 5, true}, // of whichever port
		{"eth0", "10.0.0.2", 1, 6, false},
		{"eth0", "fe80::1%eth0", 1, 1, true},
	} {
		g, err := find("mlx5_0", c.netdev, c.port, c.addr)
		require.NoError(t, err, "%+v", c)
		require.Equal(t, GID{netip.MustParseAddr(c.addr).Unmap().WithZone(""), 1, c.index, c.v2}, g, "%+v", c)
	}
	for _, c := range []struct{ netdev, addr string }{{"eth2", "10.0.0.1"}, {"eth0", "10.0.0.3"}, {"eth0", "::"}} {
		_, err := find("mlx5_0", c.netdev, 1, c.addr)
		require.ErrorIs(t, err, ErrNoGID, "%+v", c)
	}
	_, err := find("", "eth0", 1, "10.0.0.1")
	require.ErrorIs(t, err, ErrNotRDMA)
	for _, port := range []uint8{0, 1} {
		_, err = find("gone", "eth0", port, "10.0.0.1")
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = findGID(done, table(), Netdev{Name: "eth0", Device: "mlx5_0"}, netip.MustParseAddr("10.0.0.1"))
	require.ErrorIs(t, err, context.Canceled)
}

// Tables have hundreds of entries: what comes after the right one is not read.
func TestFindGIDStops(t *testing.T) {
	s := table()
	_, err := findGID(t.Context(), s, Netdev{Name: "eth0", Device: "mlx5_0", Port: 1}, netip.MustParseAddr("fe80::1"))
	require.NoError(t, err)
	require.Equal(t, 6, s.read, "two entries of three files")
}

func TestFindGIDOfIPoIB(t *testing.T) {
	mac := net.HardwareAddr{0x80, 0, 0, 0x48, 0xfe, 0x80, 19: 9}
	n := Netdev{Name: "ib0", Device: "mlx4_0", IPoIB: true, MAC: mac}
	addr := netip.MustParseAddr("10.0.0.1")
	g, err := findGID(t.Context(), table(), n, addr)
	require.NoError(t, err)
	require.Equal(t, GID{netip.MustParseAddr("fe80::9"), 2, 0, false}, g, "by its link-layer address")
	n.MAC = mac[:6]
	_, err = findGID(t.Context(), table(), n, addr)
	require.ErrorIs(t, err, ErrNoGID)
}
