package rdmacm

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
)

// An offer in private data, big endian:
//
//	magic 2 | flags and regions 1 | data length 1 | regions * [verbs.Region.AppendBinary] | data
const (
	offerTakesWrites = 0x80 // the queue pair allows RemoteWrite

	offerMagic = 0x474c
	offerFixed = 4
)

func encodeOffer(o verbs.Offer, takesWrites bool, room int) ([]byte, error) {
	n := offerFixed + len(o.Regions)*verbs.RegionSize + len(o.Data)
	if n > room || len(o.Regions) >= offerTakesWrites || len(o.Data) > 255 {
		return nil, operr.New("encode", "offer", verbs.ErrAttributes, len(o.Regions), " regions and ", len(o.Data), " bytes of data; there is room for ", room-offerFixed, " bytes, 20 for a region")
	}
	be := binary.BigEndian
	b := be.AppendUint16(make([]byte, 0, n), offerMagic)
	first := byte(len(o.Regions))
	if takesWrites {
		first |= offerTakesWrites
	}
	b = append(b, first, byte(len(o.Data)))
	for _, r := range o.Regions {
		b, _ = r.AppendBinary(b)
	}
	return append(b, o.Data...), nil
}

// decodeOffer takes what an unauthenticated peer may have sent, and zeros behind it.
func decodeOffer(b []byte) (o verbs.Offer, takesWrites bool, err error) {
	be := binary.BigEndian
	if len(b) < offerFixed || be.Uint16(b) != offerMagic {
		return verbs.Offer{}, false, operr.New("decode", "offer", verbs.ErrMessage, "not a link's")
	}
	regions, data := int(b[2]&^offerTakesWrites), int(b[3])
	takesWrites = b[2]&offerTakesWrites != 0
	b = b[offerFixed:]
	if len(b) < regions*verbs.RegionSize+data {
		return verbs.Offer{}, false, operr.New("decode", "offer", verbs.ErrMessage, regions, " regions and ", data, " bytes of data in ", len(b), " bytes")
	}
	for range regions {
		var r verbs.Region
		if err := r.UnmarshalBinary(b[:verbs.RegionSize]); err != nil {
			return verbs.Offer{}, false, err
		}
		o.Regions, b = append(o.Regions, r), b[verbs.RegionSize:]
	}
	if data > 0 {
		o.Data = append([]byte(nil), b[:data]...)
	}
	return o, takesWrites, nil
}
