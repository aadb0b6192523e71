package wire

import "encoding/binary"

// AppendPlacement encodes a message with a placement, which package place encodes.
func AppendPlacement(dst []byte, epoch uint32, placement []byte) []byte {
	start := len(dst)
	return end(append(begin(dst, KindPlacement, epoch), placement...), start)
}

// ReadPlacement decodes such a message. The placement is a view.
func ReadPlacement(src []byte) (placement []byte, err error) {
	_, placement, err = open(src, KindPlacement, 0)
	return placement, err
}

// Listed is what a list of the records of shards has of one of them. The reply to [OpList] has in Value
// as many as fit, and in Number the cursor of the next request, 0 at the end. The request has the
// shards in Value, as package place writes a set, and the cursor in Initial.
type Listed struct {
	Key     []byte
	CAS     uint64
	Left    uint64 // ms until it expires, or is flushed; 0: never
	Attrs   uint16
	Fetched bool // it was read since it was stored
}

// MaxListed is the length of the longest entry of a list.
const MaxListed = listedFixed + MaxKey

const listedFixed = 21

// AppendListed encodes an entry of a list.
func AppendListed(dst []byte, l *Listed) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint16(dst, uint16(len(l.Key)))
	dst = le.AppendUint16(dst, l.Attrs)
	fetched := byte(0)
	if l.Fetched {
		fetched = 1
	}
	dst = append(dst, fetched)
	dst = le.AppendUint64(dst, l.CAS)
	return append(le.AppendUint64(dst, l.Left), l.Key...)
}

// ReadListed decodes the first entry of a list. The key is a view.
func ReadListed(src []byte) (l Listed, rest []byte, err error) {
	if len(src) < listedFixed {
		return l, nil, Malformed
	}
	le := binary.LittleEndian
	n := listedFixed + int(le.Uint16(src))
	if n == listedFixed || n > MaxListed || n > len(src) || src[4] > 1 || le.Uint16(src[2:])&^attrsKnown != 0 {
		return l, nil, Malformed
	}
	return Listed{src[listedFixed:n:n], le.Uint64(src[5:]), le.Uint64(src[13:]), le.Uint16(src[2:]), src[4] == 1}, src[n:], nil
}
