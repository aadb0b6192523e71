package nldev

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	attrQPN      = 21
	attrType     = 26
	attrState    = 27
	attrPID      = 28
	attrKernName = 29
	attrCQE      = 37
	attrMRLen    = 45
)

// kinds are the tracked objects: the command that lists them, the attribute
// with the table of entries, and the one with an entry's number.
var kinds = []struct {
	name   string
	cmd    uint16
	table  uint16
	number uint16
}{
	{"qp", 10, 19, attrQPN}, {"cm_id", 11, 30, 63}, {"cq", 12, 35, 61}, {"mr", 13, 40, 62}, {"pd", 14, 46, 60},
	{"ctx", 22, 86, 64}, {"srq", 23, 88, 90},
}

var (
	qpTypes  = []string{"SMI", "GSI", "RC", "UC", "UD", "RAW_IPV6", "RAW_ETHERTYPE", "", "RAW_PACKET", "XRC_INI", "XRC_TGT"}
	qpStates = []string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}
)

// Resources lists the objects in use on all devices. Kinds that this kernel
// does not track are left out.
func Resources() ([]Resource, error) {
	devices, err := Devices()
	if err != nil {
		return nil, err
	}
	var out []Resource
	for _, d := range devices {
		for _, k := range kinds {
			msgs, err := Request(k.cmd, netlink.Dump, about(d.Index, 0))
			if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list %s of %s: %w", k.name, d.Name, err)
			}
			for _, m := range msgs {
				list, err := parseResources(m.Data, k.table, k.number)
				if err != nil {
					return nil, err
				}
				for _, r := range list {
					r.Device, r.Kind = d.Name, k.name
					out = append(out, r)
				}
			}
		}
	}
	return out, nil
}

func parseResources(b []byte, table, numberAttr uint16) (out []Resource, err error) {
	err = each(b, func(ad *netlink.AttributeDecoder) {
		if ad.Type() != table {
			return
		}
		nested(ad, func(entry *netlink.AttributeDecoder) {
			var r Resource
			nested(entry, func(ad *netlink.AttributeDecoder) { r.take(ad, numberAttr) })
			out = append(out, r)
		})
	})
	return out, err
}

func (r *Resource) take(ad *netlink.AttributeDecoder, numberAttr uint16) {
	switch ad.Type() {
	case numberAttr:
		r.Number = uint32(number(ad.Bytes()))
	case attrType:
		r.Type = nameOf(qpTypes, ad.Uint8())
	case attrState:
		r.State = nameOf(qpStates, ad.Uint8())
	case attrPID:
		r.PID = int(ad.Uint32())
	case attrKernName:
		r.Kernel = ad.String()
	case attrCQE, attrMRLen:
		r.Size = number(ad.Bytes())
	}
}

func nameOf(names []string, v uint8) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprint(v)
}
