package rdmacm

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
)

// An offer in private data, big endian:
//
//	magic 2 | regions 1 | data length 1 | regions * [verbs.Region.AppendBinary] | data
const (
	offerMagic = 0x474c
	offerFixed = 4
)

func encodeOffer(o verbs.Offer, room int) ([]byte, error) {
	n := offerFixed + len(o.Regions)*verbs.RegionSize + len(o.Data)
	if n > room || len(o.Regions) > 255 || len(o.Data) > 255 {
		return nil, operr.New("encode", "offer", verbs.ErrAttributes, len(o.Regions), " regions and ", len(o.Data), " bytes of data; there is room for ", room-offerFixed, " bytes, 20 for a region")
	}
	be := binary.BigEndian
	b := be.AppendUint16(make([]byte, 0, n), offerMagic)
	b = append(b, byte(len(o.Regions)), byte(len(o.Data)))
	for _, r := range o.Regions {
		b, _ = r.AppendBinary(b)
	}
	return append(b, o.Data...), nil
}

// decodeOffer takes what a stranger may have sent, and zeros behind it.
func decodeOffer(b []byte) (verbs.Offer, error) {
	be := binary.BigEndian
	if len(b) < offerFixed || be.Uint16(b) != offerMagic {
		return verbs.Offer{}, operr.New("decode", "offer", verbs.ErrMessage, "not a link's")
	}
	regions, data := int(b[2]), int(b[3])
	b = b[offerFixed:]
	if len(b) < regions*verbs.RegionSize+data {
		return verbs.Offer{}, operr.New("decode", "offer", verbs.ErrMessage, regions, " regions and ", data, " bytes of data in ", len(b), " bytes")
	}
	var o verbs.Offer
	for range regions {
		var r verbs.Region
		if err := r.UnmarshalBinary(b[:verbs.RegionSize]); err != nil {
			return verbs.Offer{}, err
		}
		o.Regions, b = append(o.Regions, r), b[verbs.RegionSize:]
	}
	if data > 0 {
		o.Data = append([]byte(nil), b[:data]...)
	}
	return o, nil
}
