package netpath

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"path"
	"strconv"
	"strings"
)

// portActive is the state of a port that carries packets (IB_PORT_ACTIVE).
const portActive = 4

// readTables looks for the netdevs in the GID tables of all devices, in sysfs. A netdev
// with entries at several ports gets the first active one.
func readTables(ctx context.Context, sys fs.FS, of ifaces) (tabled, error) {
	out := tabled{}
	if len(of) == 0 {
		return out, nil
	}
	devices, err := fs.ReadDir(sys, ".")
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		ports, err := portsOf(sys, d.Name())
		if errors.Is(err, fs.ErrNotExist) { // the device has just gone
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, p := range ports {
			t := gidTable{sys, path.Join(d.Name(), "ports", strconv.Itoa(int(p)))}
			found, err := t.netdevs(ctx, of)
			if err != nil {
				return nil, err
			}
			active := len(found) > 0 && t.active()
			for _, n := range found {
				if old, ok := out[n.Index]; !ok || active && !old.active {
					out[n.Index] = rdmaPort{d.Name(), p, n.Index, active}
				}
			}
		}
	}
	return out, nil
}

// netdevs lists those of the netdevs that have an entry in the table. On lo, where simulated
// devices lie, it has to be one of lo's addresses.
func (t gidTable) netdevs(ctx context.Context, of ifaces) (found ifaces, err error) {
	err = t.each(ctx, func(i int, a netip.Addr) error {
		name, read := "", false
		for _, n := range of {
			if !n.HasGID(a) || n.Loopback && !a.IsLoopback() {
				continue
			}
			if !n.IPoIB && !read {
				read = true
				if name, err = t.read("gid_attrs/ndevs", i); err != nil && !gone(err) {
					return err
				}
			}
			if _, seen := found.byIndex(n.Index); !seen && (n.IPoIB || n.Name == name) {
				found = append(found, n)
			}
		}
		return nil
	})
	return found, err
}

// active reports whether the port carries packets.
func (t gidTable) active() bool {
	text, err := fs.ReadFile(t.sys, path.Join(t.port, "state"))
	return err == nil && strings.HasPrefix(string(text), strconv.Itoa(portActive)+":")
}
