package main

import (
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/netpath"
)

// eachPort calls f for each port of the devices.
func (f facts) eachPort(do func(d deviceFacts, p portFacts, object string)) {
	for _, d := range f.Devices {
		for _, p := range d.Ports {
			do(d, p, fmt.Sprintf("%s port %d", d.Name, p.Num))
		}
	}
}

const (
	noSoftRoCE       = "its netdev is in another network namespace, and Soft-RoCE carries no data here: it receives by no macvlan or ipvlan, and before Linux 7.1 in no namespace but the host's"
	noSoftRoCERemedy = "run in the namespace of its netdev (a container: docker run --network host)"
)

func checkNamespace(f facts) (out []finding) {
	f.eachPort(func(d deviceFacts, p portFacts, object string) {
		if !d.roce() || p.Netdev != "" || d.Simulated {
			return
		}
		if d.Driver == "rxe" && f.Shared {
			out = append(out, finding{problem, "", object,
				noSoftRoCE, noSoftRoCERemedy})
			return
		}
		if len(p.Others) > 0 && f.Shared {
			out = append(out, finding{advice, "", object,
				"its netdev is in another network namespace; from here the port is reached by the addresses of " + p.Others[0].Name + ", which are in its GID table",
				"leave the netdev where it is, and connect from these addresses"})
			return
		}
		text, remedy := "its netdev is in another network namespace, so it has no usable address here", "run there (ip netns exec NAME), or give this one a macvlan or ipvlan netdev on top of it; or move the netdev here: ip link set NETDEV netns PID"
		if !f.Shared {
			text = "the device is in this network namespace, its netdev in another: they must be together"
			remedy = "rdma dev set " + d.Name + " netns NAME, or move the netdev"
		}
		out = append(out, finding{problem, "", object, text, remedy})
	})
	return out
}

func checkLink(f facts) (out []finding) {
	f.eachPort(func(d deviceFacts, p portFacts, object string) {
		switch {
		case p.Netdev != "" && !p.Up:
			out = append(out, finding{problem, "", object, "link down: its netdev " + p.Netdev + " is down", "ip link set " + p.Netdev + " up"})
		case p.Netdev != "" && !p.Running:
			out = append(out, finding{problem, "", object, "link down: its netdev " + p.Netdev + " has no carrier", "look at the cable and at the other end"})
		case p.State == verbs.PortActive || p.State == verbs.PortActiveDefer:
		case p.State == verbs.PortInit && !d.roce():
			out = append(out, finding{problem, "", object, "the port waits in the state init", "start a subnet manager (opensm) in this fabric"})
		case p.Netdev != "" || len(p.Others) > 0 || !d.roce():
			out = append(out, finding{problem, "", object, fmt.Sprintf("the port is %v, not active", p.State), "look at the cable and at the other end"})
		}
	})
	return out
}

func checkGIDs(f facts) (out []finding) {
	f.eachPort(func(d deviceFacts, p portFacts, object string) {
		if !d.roce() || !p.Known || p.Netdev == "" || !p.Up {
			return // other checks say that
		}
		v1, local, usable := false, false, false
		for _, g := range p.GIDs {
			switch {
			case g.Type != verbs.GIDRoCEv2:
				v1 = true
			case g.Addr.IsLinkLocalUnicast():
				local = true
			default:
				usable = true
			}
		}
		addAddress := "ip addr add ADDRESS/BITS dev " + p.Netdev
		switch {
		case usable:
		case local:
			out = append(out, finding{advice, "", object, "the only RoCE v2 GID is link-local: peers beyond a router cannot reach it", addAddress})
		case v1:
			out = append(out, finding{problem, "", object, "there are GIDs of RoCE v1 only, which peers with RoCE v2 do not understand", addAddress + "; if that changes nothing, the device or its firmware has no RoCE v2 (cma_roce_mode)"})
		default:
			out = append(out, finding{problem, "", object, "there is no GID", addAddress})
		}
	})
	return out
}

func checkIPoIB(f facts) (out []finding) {
	for _, name := range f.IPoIB {
		out = append(out, finding{problem, "", name, "it is IP over InfiniBand, and no port here has the GID in its hardware address: its IP addresses lead to no device",
			"ip link show " + name + " and rdmactl devices: the last 16 bytes must be a port's GID; the device may be in another network namespace (rdma dev set NAME netns THIS)"})
	}
	return out
}

// longestHeaders are those of the longest RoCE v2 packet with a payload: IPv6,
// UDP, BTH, RETH, immediate data and CRC.
const longestHeaders = 40 + 8 + 12 + 16 + 4 + 4

func checkMTU(f facts) (out []finding) {
	f.eachPort(func(d deviceFacts, p portFacts, object string) {
		for _, n := range p.Others {
			if fits := netpath.RoCEMTU(n.MTU); d.roce() && fits < p.ActiveMTU {
				out = append(out, finding{advice, "", object,
					fmt.Sprintf("the MTU of %s is %d: connections from its addresses carry an RDMA MTU of %d, and programs that take the port's, %d, lose their large packets", n.Name, n.MTU, fits, p.ActiveMTU),
					fmt.Sprintf("ip link set %s mtu %d, and the same on switches and peers; or a path MTU of %d (ib_send_bw -m, NCCL and UCX settings), which goverbs takes by itself", n.Name, netdevMTU(p.ActiveMTU), fits)})
			}
		}
	})
	var seen []int
	f.eachPort(func(d deviceFacts, p portFacts, object string) {
		if !d.roce() || p.Netdev == "" || p.ActiveMTU == 0 {
			return
		}
		if !slices.Contains(seen, p.ActiveMTU) {
			seen = append(seen, p.ActiveMTU)
		}
		netdev := fmt.Sprintf("the MTU of %s is %d", p.Netdev, p.NetdevMTU)
		switch {
		case p.NetdevMTU < p.ActiveMTU+longestHeaders:
			out = append(out, finding{problem, "", object,
				fmt.Sprintf("%s, too small for packets of the active RDMA MTU %d: they get lost", netdev, p.ActiveMTU),
				fmt.Sprintf("ip link set %s mtu %d, and the same on switches and peers; or connect with a smaller path MTU", p.Netdev, netdevMTU(p.ActiveMTU))})
		case p.ActiveMTU < p.MaxMTU && (netpath.RoCEMTU(p.NetdevMTU) > p.ActiveMTU || p.NetdevMTU >= netdevMTU(p.MaxMTU)):
			out = append(out, finding{advice, "", object,
				fmt.Sprintf("the RDMA MTU is %d of %d although %s", p.ActiveMTU, p.MaxMTU, netdev),
				"leave the netdev as it is; look for the reason in the kernel log and in the settings of the driver and the firmware"})
		case p.ActiveMTU < p.MaxMTU:
			out = append(out, finding{advice, "", object,
				fmt.Sprintf("%s, which limits the RDMA MTU to %d of %d", netdev, p.ActiveMTU, p.MaxMTU),
				fmt.Sprintf("ip link set %s mtu %d, and the same on switches and peers", p.Netdev, netdevMTU(p.MaxMTU))})
		}
	})
	if len(seen) > 1 {
		slices.Sort(seen)
		out = append(out, finding{advice, "", "host", fmt.Sprintf("ports have different RDMA MTUs: %v", seen),
			"a connection must use the smaller MTU of its two ends; better give all netdevs the same"})
	}
	return out
}

// netdevMTU returns a netdev MTU that carries an RDMA MTU: a round number, as
// switches have to be set to it too.
func netdevMTU(rdma int) int {
	return (rdma + 96 + 99) / 100 * 100
}
