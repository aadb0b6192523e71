package nldev

import (
	"encoding/binary"

	"github.com/mdlayher/netlink"
)

// each calls f for each attribute of a message.
func each(b []byte, f func(*netlink.AttributeDecoder)) error {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return err
	}
	for ad.Next() {
		f(ad)
	}
	return ad.Err()
}

// nested calls f for each attribute inside the current one.
func nested(ad *netlink.AttributeDecoder, f func(*netlink.AttributeDecoder)) {
	ad.Nested(func(in *netlink.AttributeDecoder) error {
		for in.Next() {
			f(in)
		}
		return nil
	})
}

// number reads an integer of any size; others are 0.
func number(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	case 8:
		return binary.NativeEndian.Uint64(b)
	}
	return 0
}
