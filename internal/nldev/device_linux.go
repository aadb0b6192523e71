package nldev

import (
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
)

// drivers are the names by enum rdma_driver_id.
var drivers = []string{"", "mlx5", "mlx4", "cxgb3", "cxgb4", "mthca", "bnxt_re", "ocrdma", "nes", "irdma",
	"vmw_pvrdma", "qedr", "hns", "usnic", "rxe", "hfi1", "qib", "efa", "siw", "erdma", "mana"}

// Devices lists the devices that this network namespace sees, by their names.
func Devices() ([]Device, error) {
	msgs, err := Request(CmdGet, netlink.Dump, nil)
	if err != nil {
		return nil, err
	}
	out := make([]Device, len(msgs))
	for i, m := range msgs {
		if out[i], err = parseDevice(m.Data); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b Device) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func parseDevice(b []byte) (d Device, err error) {
	err = each(b, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case AttrDevIndex:
			d.Index = ad.Uint32()
		case AttrDevName:
			d.Name = ad.String()
		case attrPortIndex:
			d.Ports = int(ad.Uint32())
		case attrFirmware:
			d.Firmware = ad.String()
		case attrNodeGUID:
			d.NodeGUID = ad.Uint64()
		case attrProtocol:
			d.Protocol = ad.String()
		}
	})
	return d, err
}

// Ports lists the ports of a device.
func Ports(dev uint32) ([]Port, error) {
	msgs, err := Request(cmdPortGet, netlink.Dump, about(dev, 0))
	if err != nil {
		return nil, err
	}
	out := make([]Port, len(msgs))
	for i, m := range msgs {
		if out[i], err = parsePort(m.Data); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func parsePort(b []byte) (p Port, err error) {
	err = each(b, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case attrPortIndex:
			p.Num = int(ad.Uint32())
		case attrPortState:
			p.State = int(ad.Uint8())
		case attrNetdev:
			p.NetdevIndex = int(ad.Uint32())
		case AttrNetdevName:
			p.Netdev = ad.String()
		}
	})
	return p, err
}

// UVerbs returns the device file of a device. It fails if ib_uverbs is missing.
func UVerbs(dev uint32) (CharDev, error) {
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(AttrDevIndex, dev)
	ae.String(attrCharType, "uverbs")
	b, err := ae.Encode()
	if err != nil {
		return CharDev{}, err
	}
	msgs, err := Request(cmdCharDev, 0, b)
	if err != nil || len(msgs) == 0 {
		return CharDev{}, err
	}
	return parseCharDev(msgs[0].Data)
}

func parseCharDev(b []byte) (c CharDev, err error) {
	err = each(b, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case attrCharName:
			c.Name = ad.String()
		case attrCharNumber:
			c.Number = ad.Uint64()
		case attrDriverID:
			// 64 bits on the wire today, 32 in the header's words.
			if id := number(ad.Bytes()); id < uint64(len(drivers)) {
				c.Driver = drivers[id]
			}
		}
	})
	return c, err
}

// Shared reports whether all network namespaces see all devices, which is the
// kernel's default; otherwise a device belongs to one namespace.
func Shared() (bool, error) {
	msgs, err := Request(cmdSysGet, 0, nil)
	if err != nil || len(msgs) == 0 {
		return true, err
	}
	return parseShared(msgs[0].Data)
}

func parseShared(b []byte) (shared bool, err error) {
	shared = true
	err = each(b, func(ad *netlink.AttributeDecoder) {
		if ad.Type() == attrNetnsMode {
			shared = ad.Uint8() != 0
		}
	})
	return shared, err
}
