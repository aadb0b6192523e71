package topo

import (
	"cmp"
	"encoding/binary"
	"errors"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// What linux/rtnetlink.h and linux/pkt_sched.h call the parts of a queueing
// discipline netem. Package tc has no models of loss.
const (
	tcaKind      = 1 // TCA_KIND
	tcaOptions   = 2 // TCA_OPTIONS
	netemCorrupt = 4 // TCA_NETEM_CORRUPT: struct tc_netem_corrupt
	netemLoss    = 5 // TCA_NETEM_LOSS
	netemRate    = 6 // TCA_NETEM_RATE: struct tc_netem_rate
	netemLatency = 10
	netemJitter  = 11
	netemGE      = 2 // NETEM_LOSS_GE: struct tc_netem_gemodel
)

// impairBursts is Impair for an impairment with bursts.
func impairBursts(dev string, i Impairment) error {
	if i.Loss != 0 || i.Reorder != 0 || i.Corrupt != 0 || i.Rate != 0 {
		return errors.New("bursts of loss go with delay, duplicates and a queue only")
	}
	return locate(dev, func(space int, index uint32) error {
		c, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{NetNS: space})
		if err != nil {
			return wrap(err, "traffic control")
		}
		defer c.Close()
		data, err := burstRequest(index, i)
		if err != nil {
			return err
		}
		_, err = c.Execute(netlink.Message{
			Header: netlink.Header{Type: unix.RTM_NEWQDISC, Flags: netlink.Request | netlink.Acknowledge | netlink.Replace | netlink.Create},
			Data:   data,
		})
		return wrap(err, "impair %s", dev)
	})
}

// burstRequest is struct tcmsg for the root of an interface, and the attributes
// of the discipline.
func burstRequest(index uint32, i Impairment) ([]byte, error) {
	ne := binary.NativeEndian
	words := func(b []byte, all ...uint32) []byte {
		for _, w := range all {
			b = ne.AppendUint32(b, w)
		}
		return b
	}
	// struct tc_netem_qopt: latency, limit, loss, gap, duplicate, jitter
	options := words(nil, 0, uint32(cmp.Or(i.Queue, 10000)), 0, 0, prob(i.Duplicate), 0)
	inner := netlink.NewAttributeEncoder()
	inner.Int64(netemLatency, int64(i.Delay))
	inner.Int64(netemJitter, int64(i.Jitter))
	inner.Bytes(netemCorrupt, words(nil, 0, 0)) // what is not named stays as it was
	inner.Bytes(netemRate, words(nil, 0, 0, 0, 0))
	inner.Nested(netemLoss, func(loss *netlink.AttributeEncoder) error {
		// p, r, probability to survive a bad link, to be lost on a good one.
		loss.Bytes(netemGE, words(nil, prob(i.Burst.Begin), prob(i.Burst.End), prob(1-cmp.Or(i.Burst.Loss, 1)), 0))
		return nil
	})
	b, err := inner.Encode()
	if err != nil {
		return nil, err
	}
	outer := netlink.NewAttributeEncoder()
	outer.String(tcaKind, "netem")
	outer.Bytes(tcaOptions, append(options, b...))
	if b, err = outer.Encode(); err != nil {
		return nil, err
	}
	const handle, root = 1 << 16, 0xffffffff
	return append(words(nil, unix.AF_UNSPEC, index, handle, root, 0), b...), nil
}
