//go:build linux

package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/ci/topo"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/netpath"
)

// vlans stacks a VLAN with an MTU of 1500 on each end of the wire, with 4096 at its ports,
// and returns their names and addresses. Packets between the addresses cross the wire.
func vlans(t *testing.T) (names [2]string, addrs [2]netip.Addr) {
	ends := lab.Require(t, 2)
	lab.RequireTopology(t, "wire")
	ip := func(args ...any) {
		var words []string
		for _, a := range args {
			words = append(words, fmt.Sprint(a))
		}
		lab.IP(t, words...)
	}
	for i := range addrs {
		names[i], addrs[i] = ends[i].Netdev+".5", netip.AddrFrom4([4]byte{10, 99, 0, byte(i + 1)})
	}
	for i, dev := range names {
		ip("link", "add", "link", ends[i].Netdev, "name", dev, "type", "vlan", "id", 5)
		t.Cleanup(func() { ip("link", "del", dev) })
		for name, value := range map[string]string{"accept_local": "1", "rp_filter": "0", "arp_ignore": "1", "arp_announce": "2"} {
			require.NoError(t, os.WriteFile("/proc/sys/net/ipv4/conf/"+dev+"/"+name, []byte(value), 0o644))
		}
		ip("link", "set", dev, "mtu", 1500, "up")
		ip("addr", "add", addrs[i].String()+"/24", "dev", dev)
		ip("rule", "add", "pref", 15+i, "iif", dev, "lookup", "local")
		t.Cleanup(func() { ip("rule", "del", "pref", 15+i) })
		ip("rule", "add", "pref", 20+i, "from", addrs[i], "to", addrs[1-i], "lookup", 121+i)
		t.Cleanup(func() { ip("rule", "del", "pref", 20+i) })
		ip("route", "add", "10.99.0.0/24", "dev", dev, "src", addrs[i], "table", 121+i)
	}
	return names, addrs
}

// readOver dials one address from another and reads 8192 bytes there.
func readOver(t *testing.T, from, to netip.Addr) (client verbs.GIDEntry, mtu verbs.MTU) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l, err := net.Listen("tcp", netip.AddrPortFrom(to, 0).String())
	require.NoError(t, err)
	memory := make([]byte, 8192)
	copy(memory[8000:], "over the VLAN")
	served := make(chan error, 1)
	go func() {
		cfg := verbs.LinkConfig{Setup: verbs.OfferMemory(memory, verbs.RemoteRead)}
		served <- verbs.ServeLinks(ctx, l, cfg, func(ctx context.Context, l *verbs.Link) error {
			<-ctx.Done()
			return nil
		}, nil)
	}()
	defer func() {
		cancel()
		require.NoError(t, <-served)
	}()
	dialer := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	link, err := verbs.DialLink(ctx, l.Addr().String(), verbs.LinkConfig{Dialer: dialer})
	require.NoError(t, err)
	defer func() { require.NoError(t, link.Close()) }()
	mr, err := link.AllocMR(8192, verbs.MRConfig{})
	require.NoError(t, err)
	r, err := link.Requester()
	require.NoError(t, err)
	require.NoError(t, r.Read(ctx, link.Regions()[0].At(0), mr.SGE(0, 8192)))
	require.Equal(t, "over the VLAN", string(mr.Bytes()[8000:8013]))
	a, err := link.QP().Query()
	require.NoError(t, err)
	return link.QP().GID(), a.PathMTU
}

// The MTU is the VLAN's, not the port's: READs of more than one packet arrive.
func TestLinkOverVLAN(t *testing.T) {
	names, addrs := vlans(t)
	for i, a := range addrs {
		l, err := lookupSoon(t, a)
		require.NoError(t, err)
		require.Equal(t, names[i], l.Netdev)
		require.Equal(t, 5, l.VLAN)
		require.Equal(t, verbs.MTU1024, l.MTU())
	}
	gid, mtu := readOver(t, addrs[0], addrs[1])
	require.Equal(t, addrs[0], gid.GID.Addr())
	require.Equal(t, verbs.MTU1024, mtu)
}

// The smaller MTU of two hosts holds for both directions.
func TestLinkBetweenMTUs(t *testing.T) {
	names, addrs := vlans(t)
	lab.IP(t, "link", "set", names[1], "mtu", fmt.Sprint(topo.MTU))
	for i, want := range []verbs.MTU{verbs.MTU1024, verbs.MTU4096} {
		l, err := lookupSoon(t, addrs[i])
		require.NoError(t, err)
		require.Equal(t, want, l.MTU())
	}
	for i := range addrs {
		_, mtu := readOver(t, addrs[i], addrs[1-i])
		require.Equal(t, verbs.MTU1024, mtu)
	}
}

// Links come about again after each change of a host's netdev.
func TestLinkAfterHostChanges(t *testing.T) {
	names, addrs := vlans(t)
	dev, renamed := names[0], names[0]+"new"
	prefix := addrs[0].String() + "/24"
	for _, change := range []struct {
		name string
		ips  [][]string
	}{
		{"nothing", nil},
		{"address", [][]string{{"addr", "del", prefix, "dev", dev}, {"addr", "add", prefix, "dev", dev}}},
		{"link", [][]string{{"link", "set", dev, "down"}, {"link", "set", dev, "up"}}},
		{"name", [][]string{{"link", "set", dev, "down"}, {"link", "set", dev, "name", renamed}, {"link", "set", renamed, "up"}}},
		{"name again", [][]string{{"link", "set", renamed, "down"}, {"link", "set", renamed, "name", dev}, {"link", "set", dev, "up"}}},
	} {
		t.Run(change.name, func(t *testing.T) {
			for _, words := range change.ips {
				lab.IP(t, words...)
			}
			at, err := lookupSoon(t, addrs[0])
			require.NoError(t, err)
			// Routes go with the address and with the link, rules with the name.
			lab.IP(t, "route", "replace", "10.99.0.0/24", "dev", at.Netdev, "src", addrs[0].String(), "table", "121")
			if at.Netdev == renamed {
				lab.IP(t, "rule", "add", "pref", "14", "iif", renamed, "lookup", "local")
				defer lab.IP(t, "rule", "del", "pref", "14")
			}
			gid, mtu := readOver(t, addrs[0], addrs[1])
			require.Equal(t, addrs[0], gid.GID.Addr())
			require.Equal(t, verbs.MTU1024, mtu)
			readOver(t, addrs[1], addrs[0])
		})
	}
}

// A VLAN and its NIC have the same link-local address: the zone says which is meant.
func TestLinkToLinkLocal(t *testing.T) {
	names, addrs := vlans(t)
	var local [2]netip.Addr
	for i, name := range names {
		_, err := lookupSoon(t, addrs[i])
		require.NoError(t, err)
		ifi, err := net.InterfaceByName(name)
		require.NoError(t, err)
		mac := ifi.HardwareAddr
		local[i] = netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]}).WithZone(name)
		for _, dev := range []string{name, name[:len(name)-2]} {
			// The kernel's own may still be looked for on the link, where it is there twice.
			lab.IP(t, "-6", "addr", "flush", "dev", dev, "scope", "link")
			lab.IP(t, "addr", "add", local[i].WithZone("").String()+"/64", "dev", dev, "nodad")
		}
	}
	for i, a := range local {
		l, err := lookupSoon(t, a)
		require.NoError(t, err)
		require.Equal(t, names[i], l.Netdev)
	}
	gid, mtu := readOver(t, local[0], local[1])
	ifi, err := net.InterfaceByIndex(gid.IfIndex)
	require.NoError(t, err)
	require.Equal(t, names[0], ifi.Name)
	require.Equal(t, verbs.MTU1024, mtu)
}

// The lower netdev of a macvlan or VLAN in a container is in another namespace, and the GID
// table has the entries of both.
func TestLookupMACVLANInNamespace(t *testing.T) { lookupInNamespace(t, "macvlan", "mode", "bridge") }

func TestLookupVLANInNamespace(t *testing.T) { lookupInNamespace(t, "vlan", "id", "7") }

func lookupInNamespace(t *testing.T, kind ...string) {
	lab.Spare(t)
	addr := netip.MustParseAddr("10.79.0.52")
	lab.IP(t, append([]string{"link", "add", "link", topo.SpareNetdev, "name", "mv0", "type"}, kind...)...)
	lab.IP(t, "link", "set", "mv0", "netns", topo.SpareNamespace)
	lab.IP(t, "-n", topo.SpareNamespace, "addr", "add", addr.String()+"/24", "dev", "mv0")
	lab.IP(t, "-n", topo.SpareNamespace, "link", "set", "mv0", "mtu", "1500", "up")
	lab.Within(t, topo.SpareNamespace, func() {
		l, err := verbs.LookupAddr(t.Context(), addr)
		for range 100 { // until the kernel has made the address a GID; on this thread
			if !errors.Is(err, verbs.ErrNoGID) && !errors.Is(err, netpath.ErrNotRDMA) {
				break
			}
			time.Sleep(50 * time.Millisecond)
			l, err = verbs.LookupAddr(t.Context(), addr)
		}
		require.NoError(t, err)
		require.Equal(t, topo.SpareDevice, l.Device)
		require.Equal(t, "mv0", l.Netdev)
		require.Empty(t, l.Lower)
		require.Equal(t, addr, l.GID.GID.Addr())
		require.Equal(t, verbs.MTU1024, l.MTU())
		byName, err := verbs.LookupNetdev(t.Context(), "mv0")
		require.NoError(t, err)
		require.Equal(t, l, byName)
		dev, err := verbs.Open(topo.SpareDevice, verbs.DeviceConfig{})
		require.NoError(t, err)
		defer func() { require.NoError(t, dev.Close()) }()
		all, err := dev.GIDs()
		require.NoError(t, err)
		var seen []netip.Addr
		for _, e := range all {
			seen = append(seen, e.GID.Addr())
		}
		require.Contains(t, seen, topo.SpareAddr, "the host's is in the table too")
		gid, err := dev.FindGID(verbs.GIDQuery{})
		require.NoError(t, err)
		require.Equal(t, l.GID, gid)
		_, err = dev.FindGID(verbs.GIDQuery{Addr: topo.SpareAddr})
		require.ErrorIs(t, err, verbs.ErrNoGID)
		require.ErrorContains(t, err, "of another network namespace")
		_, err = verbs.LookupNetdev(t.Context(), "peer0")
		require.ErrorIs(t, err, netpath.ErrNotRDMA)
	})
	dev, err := verbs.Open(topo.SpareDevice, verbs.DeviceConfig{})
	require.NoError(t, err)
	gid, err := dev.FindGID(verbs.GIDQuery{})
	require.NoError(t, err)
	require.NoError(t, dev.Close())
	require.Equal(t, topo.SpareAddr, gid.GID.Addr())
}
