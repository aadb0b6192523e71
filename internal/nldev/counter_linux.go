package nldev

import (
	"github.com/mdlayher/netlink"
)

const (
	attrHWCounters     = 80
	attrHWCounterName  = 82
	attrHWCounterValue = 83
)

// Counters reads the driver's counters of a port. Drivers without any refuse.
func Counters(dev, port uint32) ([]Counter, error) {
	msgs, err := Request(cmdStatGet, 0, about(dev, port))
	if err != nil || len(msgs) == 0 {
		return nil, err
	}
	return parseCounters(msgs[0].Data)
}

func parseCounters(b []byte) (out []Counter, err error) {
	err = each(b, func(ad *netlink.AttributeDecoder) {
		if ad.Type() != attrHWCounters {
			return
		}
		nested(ad, func(entry *netlink.AttributeDecoder) {
			var c Counter
			nested(entry, func(ad *netlink.AttributeDecoder) {
				switch ad.Type() {
				case attrHWCounterName:
					c.Name = ad.String()
				case attrHWCounterValue:
					c.Value = ad.Uint64()
				}
			})
			out = append(out, c)
		})
	})
	return out, err
}
