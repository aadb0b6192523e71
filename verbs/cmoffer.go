package verbs

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/verbs/internal/operr"
)

// An offer in private data, big endian:
//
//	magic 2 | regions 1 | data length 1 | regions * (address 8, length 8, rkey 4) | data
const (
	offerMagic  = 0x474c
	offerFixed  = 4
	cmRegionLen = 20
)

func encodeOffer(o Offer, room int) ([]byte, error) {
	n := offerFixed + len(o.Regions)*cmRegionLen + len(o.Data)
	if n > room || len(o.Regions) > 255 || len(o.Data) > 255 {
		return nil, operr.New("encode", "offer", ErrAttributes, len(o.Regions), " regions and ", len(o.Data), " bytes of data; there is room for ", room-offerFixed, " bytes, 20 for a region")
	}
	be := binary.BigEndian
	b := be.AppendUint16(make([]byte, 0, n), offerMagic)
	b = append(b, byte(len(o.Regions)), byte(len(o.Data)))
	for _, r := range o.Regions {
		b = be.AppendUint64(b, r.Addr)
		b = be.AppendUint64(b, r.Length)
		b = be.AppendUint32(b, r.RKey)
	}
	return append(b, o.Data...), nil
}

// decodeOffer takes what a stranger may have sent, and zeros behind it.
func decodeOffer(b []byte) (Offer, error) {
	be := binary.BigEndian
	if len(b) < offerFixed || be.Uint16(b) != offerMagic {
		return Offer{}, operr.New("decode", "offer", ErrMessage, "not a link's")
	}
	regions, data := int(b[2]), int(b[3])
	b = b[offerFixed:]
	if len(b) < regions*cmRegionLen+data {
		return Offer{}, operr.New("decode", "offer", ErrMessage, regions, " regions and ", data, " bytes of data in ", len(b), " bytes")
	}
	var o Offer
	for range regions {
		o.Regions = append(o.Regions, Region{Addr: be.Uint64(b), Length: be.Uint64(b[8:]), RKey: be.Uint32(b[16:])})
		b = b[cmRegionLen:]
	}
	if data > 0 {
		o.Data = append([]byte(nil), b[:data]...)
	}
	return o, nil
}
