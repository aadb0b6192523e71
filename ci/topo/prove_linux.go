package topo

import (
	"context"
	"fmt"
	stdnet "net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"
)

// Counters are packets of a network interface since it was made.
type Counters struct {
	RxPackets, TxPackets, RxBytes, TxBytes, RxDropped, TxDropped uint64
}

// ReadCounters reads them for an interface of this process's namespace.
func ReadCounters(dev string) (c Counters, err error) {
	for name, p := range map[string]*uint64{"rx_packets": &c.RxPackets, "tx_packets": &c.TxPackets, "rx_bytes": &c.RxBytes,
		"tx_bytes": &c.TxBytes, "rx_dropped": &c.RxDropped, "tx_dropped": &c.TxDropped} {
		b, err := os.ReadFile("/sys/class/net/" + dev + "/statistics/" + name)
		if err != nil {
			return c, err
		}
		if *p, err = strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err != nil {
			return c, err
		}
	}
	return c, nil
}

// ProveWire sends datagrams between the two ends and checks that they crossed
// the interfaces, both ways: a kernel that owns both addresses likes to deliver
// them by itself.
func ProveWire(devA string, a netip.Addr, devB string, b netip.Addr) error {
	beforeA, err := ReadCounters(devA)
	if err != nil {
		return err
	}
	beforeB, err := ReadCounters(devB)
	if err != nil {
		return err
	}
	const rounds = 5
	for range rounds {
		if _, err := PingUDP(a, b, 5*time.Second); err != nil {
			return fmt.Errorf("no datagram from %v to %v: %w", a, b, err)
		}
	}
	afterA, err := ReadCounters(devA)
	if err != nil {
		return err
	}
	afterB, err := ReadCounters(devB)
	if err != nil {
		return err
	}
	if afterA.TxPackets-beforeA.TxPackets < rounds || afterA.RxPackets-beforeA.RxPackets < rounds ||
		afterB.TxPackets-beforeB.TxPackets < rounds || afterB.RxPackets-beforeB.RxPackets < rounds {
		return fmt.Errorf("datagrams from %v to %v do not cross the wire: %+v then %+v at %s", a, b, beforeA, afterA, devA)
	}
	return nil
}

// PingUDP sends a datagram from a to b and back, both addresses of this
// machine, and returns how long that took.
func PingUDP(a, b netip.Addr, timeout time.Duration) (time.Duration, error) {
	listen := func(addr netip.Addr) (*stdnet.UDPConn, error) {
		return stdnet.ListenUDP("udp4", stdnet.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	}
	ca, err := listen(a)
	if err != nil {
		return 0, err
	}
	defer ca.Close()
	cb, err := listen(b)
	if err != nil {
		return 0, err
	}
	defer cb.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	ca.SetDeadline(deadline)
	cb.SetDeadline(deadline)
	to := func(c *stdnet.UDPConn) netip.AddrPort { return c.LocalAddr().(*stdnet.UDPAddr).AddrPort() }
	buf := make([]byte, 64)
	start := time.Now()
	if _, err := ca.WriteToUDPAddrPort([]byte("ping"), to(cb)); err != nil {
		return 0, err
	}
	if _, _, err := cb.ReadFromUDPAddrPort(buf); err != nil {
		return 0, err
	}
	if _, err := cb.WriteToUDPAddrPort([]byte("pong"), to(ca)); err != nil {
		return 0, err
	}
	_, _, err = ca.ReadFromUDPAddrPort(buf)
	return time.Since(start), err
}
