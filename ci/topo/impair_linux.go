package topo

import (
	"errors"
	"fmt"
	"math"

	"github.com/florianl/go-tc"
	"github.com/florianl/go-tc/core"
	"golang.org/x/sys/unix"
)

// Impair replaces whatever impaired an interface. The interface is in this
// namespace, or in a router's ("r0/p1").
//
// The first time that is a queueing discipline in place of the interface's own, and the
// kernel loses what is sent meanwhile. It tells the sender, and Soft-RoCE of Linux 6.12
// gives up a queue pair for that. From then on, [Clear] included, the discipline is
// changed in place, which loses nothing.
func Impair(dev string, i Impairment) error {
	return impair(dev, i, (*tc.Qdisc).Replace)
}

func impair(dev string, i Impairment, set func(*tc.Qdisc, *tc.Object) error) error {
	if i.Burst != (Burst{}) {
		return impairBursts(dev, i)
	}
	latency, jitter := int64(i.Delay), int64(i.Jitter)
	queue := i.Queue
	if queue == 0 {
		queue = 10000
	}
	n := &tc.Netem{
		Qopt:      tc.NetemQopt{Limit: uint32(queue), Loss: prob(i.Loss), Duplicate: prob(i.Duplicate)},
		Latency64: &latency, Jitter64: &jitter,
	}
	if i.Reorder > 0 {
		// A reordered packet is one that is not delayed.
		if i.Delay == 0 {
			return errors.New("reordering needs a delay that some packets skip")
		}
		n.Qopt.Gap = 1
	}
	// What a request does not name stays as it was.
	n.Reorder = &tc.NetemReorder{Probability: prob(i.Reorder)}
	n.Corrupt = &tc.NetemCorrupt{Probability: prob(i.Corrupt)}
	n.Rate = &tc.NetemRate{Rate: uint32(min(uint64(i.Rate/8), math.MaxUint32))}
	return onDevice(dev, func(c *tc.Tc, index uint32) error {
		q := &tc.Object{
			Msg:       tc.Msg{Family: unix.AF_UNSPEC, Ifindex: index, Handle: core.BuildHandle(1, 0), Parent: tc.HandleRoot},
			Attribute: tc.Attribute{Kind: "netem", Netem: n},
		}
		return wrap(set(c.Qdisc(), q), "impair %s", dev)
	})
}

func prob(p float64) uint32 { return uint32(math.Round(min(max(p, 0), 1) * math.MaxUint32)) }

// Clear ends the impairment of an interface. What was under way arrives when it would
// have, and the queueing discipline stays, with nothing to do.
func Clear(dev string) error {
	err := impair(dev, Impairment{}, (*tc.Qdisc).Change)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil // there was none
	}
	return err
}

// Restore gives an interface its own queueing discipline back, which is faster than
// one that does nothing. What is sent meanwhile is lost: see [Impair].
func Restore(dev string) error {
	return onDevice(dev, func(c *tc.Tc, index uint32) error {
		q := &tc.Object{
			Msg:       tc.Msg{Family: unix.AF_UNSPEC, Ifindex: index, Handle: core.BuildHandle(1, 0), Parent: tc.HandleRoot},
			Attribute: tc.Attribute{Kind: "netem", Netem: &tc.Netem{}},
		}
		err := c.Qdisc().Delete(q)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
			return nil // there was none
		}
		return wrap(err, "restore %s", dev)
	})
}

// LimitIngress limits what an interface of this namespace receives, in bits
// per second: its packets take a detour through a device that lets them pass
// at that rate. A limit on the sender's side would stall the sender's queue
// instead.
func LimitIngress(dev string, bitsPerSecond int64) error {
	return LimitIngressQueue(dev, bitsPerSecond, 0)
}

// LimitIngressQueue is LimitIngress with a queue of so many bytes, beyond which packets
// are lost, and bursts of 4 ms; 0 means a long queue, and bursts of 10 ms.
func LimitIngressQueue(dev string, bitsPerSecond int64, queue int) error {
	n, err := dial("")
	if err != nil {
		return err
	}
	defer n.close()
	detour := "ifb-" + dev
	if _, err := n.link(detour); err != nil {
		if err := n.addLink(detour, "ifb"); err != nil {
			return err
		}
	}
	if err := n.setMTU(detour, MTU); err != nil {
		return err
	}
	if err := n.up(detour); err != nil {
		return err
	}
	detourIndex, err := n.index(detour)
	if err != nil {
		return err
	}
	err = onDevice(detour, func(c *tc.Tc, index uint32) error {
		rate := uint32(bitsPerSecond / 8)
		burst, limit := uint32(max(int64(rate)/100, 4*MTU)), uint32(4<<20)
		if queue > 0 {
			burst, limit = uint32(max(int64(rate)/250, 4*MTU)), uint32(queue)
		}
		q := &tc.Object{
			Msg: tc.Msg{Family: unix.AF_UNSPEC, Ifindex: index, Handle: core.BuildHandle(1, 0), Parent: tc.HandleRoot},
			Attribute: tc.Attribute{Kind: "tbf", Tbf: &tc.Tbf{
				Parms: &tc.TbfQopt{
					Rate:   tc.RateSpec{Rate: rate, Linklayer: 1},
					Limit:  limit,
					Buffer: core.XmitTime(uint64(rate), burst),
					Mtu:    MTU,
				},
				Burst: &burst,
			}},
		}
		return wrap(c.Qdisc().Replace(q), "limit %s", detour)
	})
	if err != nil {
		return err
	}
	return onDevice(dev, func(c *tc.Tc, index uint32) error {
		ingress := &tc.Object{
			Msg:       tc.Msg{Family: unix.AF_UNSPEC, Ifindex: index, Handle: core.BuildHandle(0xffff, 0), Parent: tc.HandleIngress},
			Attribute: tc.Attribute{Kind: "ingress"},
		}
		if err := c.Qdisc().Add(ingress); err != nil && !errors.Is(err, unix.EEXIST) {
			return wrap(err, "watch what %s receives", dev)
		}
		filter := &tc.Object{
			// Priority 1, all protocols.
			Msg: tc.Msg{Family: unix.AF_UNSPEC, Ifindex: index, Parent: core.BuildHandle(0xffff, 0), Info: core.BuildHandle(1, 0x0300)},
			Attribute: tc.Attribute{Kind: "matchall", Matchall: &tc.Matchall{Actions: &[]*tc.Action{{
				Kind: "mirred",
				Mirred: &tc.Mirred{Parms: &tc.MirredParam{
					Action:  4, // TC_ACT_STOLEN
					Eaction: 1, // TCA_EGRESS_REDIR
					IfIndex: detourIndex,
				}},
			}}}},
		}
		err := c.Filter().Add(filter)
		if errors.Is(err, unix.EEXIST) {
			return nil
		}
		return wrap(err, "redirect %s", dev)
	})
}

// UnlimitIngress ends LimitIngress.
func UnlimitIngress(dev string) error {
	return onDevice(dev, func(c *tc.Tc, index uint32) error {
		err := c.Qdisc().Delete(&tc.Object{
			Msg:       tc.Msg{Family: unix.AF_UNSPEC, Ifindex: index, Handle: core.BuildHandle(0xffff, 0), Parent: tc.HandleIngress},
			Attribute: tc.Attribute{Kind: "ingress"},
		})
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
			return nil
		}
		return wrap(err, "free %s", dev)
	})
}

// onDevice runs f with a traffic control connection to the namespace of dev.
func onDevice(dev string, f func(c *tc.Tc, index uint32) error) error {
	return locate(dev, func(space int, index uint32) error {
		c, err := tc.Open(&tc.Config{NetNS: space})
		if err != nil {
			return fmt.Errorf("traffic control: %w", err)
		}
		defer c.Close()
		return f(c, index)
	})
}

// locate runs f with the descriptor of the namespace of dev, 0 for this
// process's own, and the interface's index there.
func locate(dev string, f func(space int, index uint32) error) error {
	name, device := splitDevice(dev)
	n, err := dial(name)
	if err != nil {
		return err
	}
	defer n.close()
	index, err := n.index(device)
	if err != nil {
		return err
	}
	space := 0
	if n.ns != nil {
		space = n.ns.fd()
	}
	return f(space, index)
}
