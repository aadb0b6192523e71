package wire

import "github.com/dchest/siphash"

// Key is a key of SipHash.
type Key [2]uint64

// Hash returns the SipHash-2-4 of b: it makes cookies, and the codes of packets that are
// authenticated by a key. It is never 0, which stands for none.
func Hash(k Key, b []byte) uint64 { return max(1, siphash.Hash(k[0], k[1], b)) }

// Append appends an address as it is hashed.
func (a *Addr) Append(b []byte) []byte {
	b = append(b, a.GID[:]...)
	return be.AppendUint32(be.AppendUint32(b, a.QPN), a.QKey)
}

// VTag returns the verification tag: the number that stands in each packet for the sender's life, and thus for
// the numbering of its packets or messages. Late packets of another one belong to no known flow.
func VTag(epoch, token uint64) uint32 { return uint32(Hash(Key{epoch, token}, nil)) }

// Seal returns the code of a Hello that goes to an address: over its headers, MAC left out,
// and the bytes of its part.
func Seal(k Key, to *Addr, headers, bytes []byte) uint64 {
	var room [MaxHeaders + SmallMTU]byte
	b := append(to.Append(room[:0]), headers[:macOffset]...)
	b = append(b, headers[macOffset+8:]...)
	return Hash(k, append(b, bytes...))
}

// SetMAC puts the code into an encoded Hello.
func SetMAC(headers []byte, mac uint64) { be.PutUint64(headers[macOffset:], mac) }
