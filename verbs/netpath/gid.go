package netpath

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/internal/sysroot"
)

// GID is an entry of the GID table of an RDMA port.
type GID struct {
	Addr   netip.Addr // the GID as an IP address; an IPv4-mapped one as IPv4
	Port   uint8
	Index  int  // changes whenever addresses come and go: never keep it
	RoCEv2 bool // else RoCE v1, or InfiniBand
}

// FindGID finds the entry of the GID table for an address of the netdev: that of
// RoCE v2 if there is one. An IPoIB netdev has the port's GID in its link-layer
// address, whatever the address is. It fails with [ErrNotRDMA] or [ErrNoGID].
//
// It reads the table from files in /sys, one entry after the other, up to the right one,
// which is usually one of the first few; if there is none, it reads the whole table.
func (n Netdev) FindGID(ctx context.Context, addr netip.Addr) (GID, error) {
	sys := infiniband(sysClass())
	defer sys.close()
	return findGID(ctx, sys, n, addr)
}

// sysClass is the folder that has one for each RDMA device.
func sysClass() string { return sysroot.Root() + "/class/infiniband" }

func findGID(ctx context.Context, sys fs.FS, n Netdev, addr netip.Addr) (GID, error) {
	const op = "find the GID of"
	object := addr.String() + " on " + n.Name
	if n.Device == "" {
		return GID{}, opError(op, object, ErrNotRDMA)
	}
	want := addr.Unmap().WithZone("")
	if n.IPoIB {
		if len(n.MAC) != 20 {
			return GID{}, opError(op, object, ErrNoGID, "its link-layer address ", n.MAC, " has none")
		}
		want = netip.AddrFrom16([16]byte(n.MAC[4:])).Unmap()
	}
	ports := []uint8{n.Port}
	if n.Port == 0 {
		var err error
		if ports, err = portsOf(sys, n.Device); err != nil {
			return GID{}, opError(op, object, err)
		}
	}
	for _, p := range ports {
		g, err := gidTable{sys, path.Join(n.Device, "ports", strconv.Itoa(int(p)))}.find(ctx, n, want)
		if err != nil {
			return GID{}, opError(op, object, err)
		}
		if g != nil {
			g.Port = p
			return *g, nil
		}
	}
	return GID{}, opError(op, object, ErrNoGID, n.Device, " has none for it")
}

// portsOf lists the ports of a device.
func portsOf(sys fs.FS, device string) ([]uint8, error) {
	dirs, err := fs.ReadDir(sys, path.Join(device, "ports"))
	if err != nil {
		return nil, err
	}
	var out []uint8
	for _, d := range dirs {
		if p, err := strconv.ParseUint(d.Name(), 10, 8); err == nil {
			out = append(out, uint8(p))
		}
	}
	return out, nil
}

// gidTable is the GID table of a port in sysfs.
type gidTable struct {
	sys  fs.FS
	port string // its folder
}

// errStop ends a walk through a table.
var errStop = errors.New("stop")

// each calls f with the entries that are not free, until f returns an error; errStop
// ends the walk without one.
func (t gidTable) each(ctx context.Context, f func(i int, a netip.Addr) error) error {
	for i := 0; ; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		text, err := t.read("gids", i)
		switch {
		case errors.Is(err, fs.ErrNotExist) && i > 0:
			return nil // the end of the table
		case errors.Is(err, syscall.EINVAL):
			continue // a free entry
		case err != nil:
			return err
		}
		// Most kernels show a free entry as zeros, which no netdev has.
		a, err := netip.ParseAddr(text)
		if err != nil || a.IsUnspecified() {
			continue
		}
		if err := f(i, a.Unmap()); err != nil {
			if errors.Is(err, errStop) {
				return nil
			}
			return err
		}
	}
}

// find returns the entry of RoCE v2 with that GID on the netdev, else the one of
// another type, else nil.
func (t gidTable) find(ctx context.Context, n Netdev, want netip.Addr) (found *GID, err error) {
	err = t.each(ctx, func(i int, a netip.Addr) error {
		if a != want {
			return nil
		}
		g, err := t.entry(n, i)
		if g == nil {
			return err
		}
		g.Addr = want
		found = g
		if g.RoCEv2 {
			return errStop
		}
		return nil
	})
	return found, err
}

// entry returns an entry of the table, or nil if it is not the netdev's or was
// just taken out.
func (t gidTable) entry(n Netdev, i int) (*GID, error) {
	if !n.IPoIB { // on InfiniBand no entry has a netdev
		switch name, err := t.read("gid_attrs/ndevs", i); {
		case gone(err) || err == nil && name != n.Name:
			return nil, nil
		case err != nil:
			return nil, err
		}
	}
	typ, err := t.read("gid_attrs/types", i)
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &GID{Index: i, RoCEv2: typ == "RoCE v2"}, nil
}

// gone reports whether a file of sysfs says that its entry is free.
func gone(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENODEV) || errors.Is(err, fs.ErrNotExist)
}

func (t gidTable) read(file string, i int) (string, error) {
	b, err := fs.ReadFile(t.sys, path.Join(t.port, file, strconv.Itoa(i)))
	return strings.TrimSpace(string(b)), err
}
