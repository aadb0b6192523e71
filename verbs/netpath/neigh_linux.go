package netpath

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/operr"
)

// neighbourWait bounds the wait for a reply; the kernel itself gives up after
// three seconds, unless configured otherwise.
const neighbourWait = 5 * time.Second

// neighbour returns the next hop's link-layer address; it makes the kernel ask
// for it if the kernel does not know it.
func (h *host) neighbour(ctx context.Context, n iface, src, dst, hop netip.Addr) (net.HardwareAddr, NeighbourState, error) {
	mac, state, err := h.known(n, hop)
	if err != nil || state.known() {
		return mac, state, err
	}
	if err := provoke(n, src, dst); err != nil {
		return nil, state, err
	}
	ctx, cancel := context.WithTimeout(ctx, neighbourWait)
	defer cancel()
	for {
		mac, state, err = h.known(n, hop)
		switch {
		case err != nil || state.known():
			return mac, state, err
		case state == NeighbourFailed:
			return nil, state, ErrNoNeighbour
		}
		select {
		case <-ctx.Done():
			return nil, state, operr.Class(ErrNoNeighbour, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// provoke sends an empty datagram to the discard port, so that the kernel asks
// for the neighbour. The datagram need not arrive, and provoke does not wait.
func provoke(n iface, src, dst netip.Addr) error {
	if dst.IsLinkLocalUnicast() && dst.Is6() {
		src, dst = src.WithZone(n.Name), dst.WithZone(n.Name)
	}
	d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(src, 0))}
	c, err := d.Dial("udp", netip.AddrPortFrom(dst, 9).String())
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write(nil)
	return err
}

// known is what the kernel knows of a neighbour now. It is asked for this one:
// the hosts of a large network are thousands.
func (h *host) known(n iface, hop netip.Addr) (net.HardwareAddr, NeighbourState, error) {
	b, err := neighbourRequest(n.Index, hop)
	if err != nil {
		return nil, 0, err
	}
	msgs, err := rtnetlinkAsk(unix.RTM_GETNEIGH, 0, b)
	if errors.Is(err, unix.ENOENT) || err == nil && len(msgs) == 0 {
		return nil, NeighbourNone, nil
	}
	if err != nil {
		return nil, 0, err
	}
	return neighbourOf(msgs[0].Data)
}

// neighbourRequest asks for one neighbour. The message of package rtnetlink
// always has attributes that the kernel refuses here.
func neighbourRequest(ifIndex int, hop netip.Addr) ([]byte, error) {
	b := make([]byte, unix.SizeofNdMsg)
	b[0] = unix.AF_INET
	if hop.Is6() {
		b[0] = unix.AF_INET6
	}
	binary.NativeEndian.PutUint32(b[4:], uint32(ifIndex))
	attr, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.NDA_DST, Data: hop.AsSlice()}})
	return append(b, attr...), err
}

func neighbourOf(b []byte) (net.HardwareAddr, NeighbourState, error) {
	var m rtnetlink.NeighMessage
	if err := m.UnmarshalBinary(b); err != nil || m.Attributes == nil {
		return nil, NeighbourState(m.State), err
	}
	return m.Attributes.LLAddress, NeighbourState(m.State), nil
}
