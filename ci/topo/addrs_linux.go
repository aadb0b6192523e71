package topo

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"
)

// addrsPerDevice is how many addresses are on one RDMA device. Queue pairs name
// their own GID by an index of 8 bits, so there could be some 250; but rxe looks
// for the destination of each packet in the table of GIDs, entry by entry.
const addrsPerDevice = 25

// farNetwork has all addresses of AddAddrs; those of one device are a /24.
var farNetwork = netip.MustParsePrefix("10.78.0.0/16")

// Far is address i of AddAddrs, and the RDMA device and the interface that it is
// on.
func Far(i int) (device, netdev string, a netip.Addr) {
	k := i / addrsPerDevice
	return fmt.Sprintf("rxefar%d", k), fmt.Sprintf("far%d", k), netip.AddrFrom4([4]byte{10, 78, byte(k), byte(i%addrsPerDevice + 1)})
}

// AddAddrs puts n more addresses behind h1 of "wire", those that Far returns, as
// if as many hosts were there. They are on interfaces stacked on h1, and packets
// between them and h0 cross the wire. All neighbours are entered for good: none
// of a thousand is ever asked for or forgotten. What is there already, as from a
// call before, stays as it is.
func AddAddrs(n int) error {
	c, err := dial("")
	if err != nil {
		return err
	}
	defer c.close()
	if _, dev, _ := Far(0); !c.has(dev) {
		if err := c.routeFar(); err != nil {
			return err
		}
	}
	near, err := c.link("h0")
	if err != nil {
		return err
	}
	for first := 0; first < n; first += addrsPerDevice {
		end := min(n, first+addrsPerDevice)
		device, dev, _ := Far(first)
		if !c.has(dev) {
			if err := c.addFar(near, first, end); err != nil {
				return err
			}
		}
		if err := waitGIDs(device, first, end); err != nil {
			return err
		}
	}
	return nil
}

func (n *net) has(dev string) bool {
	_, err := n.index(dev)
	return err == nil
}

// routeFar has packets of our own leave through h0, and takes in those that
// arrive.
func (n *net) routeFar() error {
	if err := n.addRule(rule{pref: 7, iif: "lo", from: only(Addr(0)), to: farNetwork, table: 103}); err != nil {
		return err
	}
	if err := n.addRule(rule{pref: 8, to: farNetwork, table: tableLocal}); err != nil {
		return err
	}
	return n.addRoute(route{dst: farNetwork.Addr(), bits: farNetwork.Bits(), dev: "h0", src: Addr(0), table: 103})
}

// addFar makes the device of the addresses from first to before end.
func (n *net) addFar(near rtnetlink.LinkMessage, first, end int) error {
	device, dev, a := Far(first)
	if err := n.addMACVLAN(dev, "h1"); err != nil {
		return err
	}
	if err := sysctls("net/ipv4/conf/"+dev, "accept_local=1", "rp_filter=0", "arp_ignore=1"); err != nil {
		return err
	}
	if err := sysctls("net/ipv6/conf/"+dev, "disable_ipv6=1"); err != nil {
		return err
	}
	if err := n.up(dev); err != nil {
		return err
	}
	far, err := n.link(dev)
	if err != nil {
		return err
	}
	if err := n.addNeighbour(far, Addr(0), near); err != nil {
		return err
	}
	table := 110 + first/addrsPerDevice
	if err := n.addRule(rule{pref: 13, from: netip.PrefixFrom(a, 24).Masked(), to: only(Addr(0)), table: table}); err != nil {
		return err
	}
	if err := n.addRoute(route{dst: Addr(0), bits: 32, dev: dev, table: table}); err != nil {
		return err
	}
	if err := AddRXE(device, dev); err != nil {
		return err
	}
	for i := first; i < end; i++ {
		_, _, a := Far(i)
		if err := n.addAddr(dev, a, 32); err != nil {
			return err
		}
		if err := n.addNeighbour(near, a, far); err != nil {
			return err
		}
	}
	return nil
}

// waitGIDs waits until a device has the GIDs of its addresses, which the kernel
// enters in the background.
func waitGIDs(device string, first, end int) error {
	dir := "/sys/class/infiniband/" + device + "/ports/1/gids/"
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		have := make(map[netip.Addr]bool)
		for i := range 256 {
			b, err := os.ReadFile(dir + strconv.Itoa(i))
			if err != nil {
				return err
			}
			a, err := netip.ParseAddr(strings.TrimSpace(string(b)))
			if err != nil {
				return err
			}
			have[a.Unmap()] = true
		}
		missing := 0
		for i := first; i < end; i++ {
			if _, _, a := Far(i); !have[a] {
				missing++
			}
		}
		if missing == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s has no GIDs for %d of %d addresses", device, missing, end-first)
		}
	}
}

// addMACVLAN stacks an interface with a link address of its own on another.
func (n *net) addMACVLAN(name, lower string) error {
	i, err := n.index(lower)
	if err != nil {
		return err
	}
	err = n.conn.Link.New(&rtnetlink.LinkMessage{Attributes: &rtnetlink.LinkAttributes{
		Name: name, Type: i, // the module's name for the interface below
		Info: &rtnetlink.LinkInfo{Kind: "macvlan"}}})
	return wrap(err, "make %s", name)
}

// addNeighbour says once and for all which interface, behind the link on, has an
// address.
func (n *net) addNeighbour(on rtnetlink.LinkMessage, a netip.Addr, is rtnetlink.LinkMessage) error {
	err := n.conn.Neigh.New(&rtnetlink.NeighMessage{Family: unix.AF_INET, Index: on.Index, State: unix.NUD_PERMANENT,
		Attributes: &rtnetlink.NeighAttributes{Address: ip4(a), LLAddress: is.Attributes.Address, IfIndex: on.Index}})
	return wrap(err, "add neighbour %v", a)
}
