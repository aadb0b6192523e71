package topo

import (
	"fmt"
	stdnet "net"
	"net/netip"
	"time"
)

// echoPort is the port of the echo protocol (RFC 862).
const echoPort = 7

// Echo replies to datagrams at an address of this host from now on, so that others
// can prove that packets reach it.
func Echo(at netip.Addr) error {
	conn, err := stdnet.ListenUDP("udp4", stdnet.UDPAddrFromAddrPort(netip.AddrPortFrom(at, echoPort)))
	if err != nil {
		return err
	}
	go func() {
		buf := make([]byte, 64)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			conn.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	return nil
}

// ProvePeer exchanges datagrams with another host that runs Echo, and checks
// that they crossed the interface.
func ProvePeer(dev string, peer netip.Addr) error {
	before, err := ReadCounters(dev)
	if err != nil {
		return err
	}
	conn, err := stdnet.DialUDP("udp4", nil, stdnet.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, echoPort)))
	if err != nil {
		return err
	}
	defer conn.Close()
	const rounds = 5
	// The first one may be lost while the peer's address is looked for.
	answers := 0
	for end := time.Now().Add(20 * time.Second); answers < rounds; {
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d datagrams to %v came back", answers, rounds, peer)
		}
		conn.SetDeadline(time.Now().Add(time.Second))
		if _, err := conn.Write([]byte{byte(answers)}); err != nil {
			continue
		}
		if _, err := conn.Read(make([]byte, 64)); err == nil {
			answers++
		}
	}
	after, err := ReadCounters(dev)
	if err != nil {
		return err
	}
	if after.TxPackets-before.TxPackets < rounds || after.RxPackets-before.RxPackets < rounds {
		return fmt.Errorf("datagrams to %v do not cross %s: %+v then %+v", peer, dev, before, after)
	}
	return nil
}
