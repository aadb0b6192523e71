package wire

import (
	"encoding/binary"
	"math/bits"
)

// Key is a key of SipHash.
type Key [2]uint64

// Hash is SipHash-2-4, a keyed pseudorandom function. It makes cookies and the codes of packets
// that are authenticated by a key.
type Hash struct {
	v0, v1, v2, v3 uint64
	tail           uint64 // bytes that do not fill a word yet
	n              uint64
}

// NewHash begins a hash.
func NewHash(k Key) Hash {
	return Hash{
		v0: k[0] ^ 0x736f6d6570736575, v1: k[1] ^ 0x646f72616e646f6d,
		v2: k[0] ^ 0x6c7967656e657261, v3: k[1] ^ 0x7465646279746573,
	}
}

func round(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}

func (h *Hash) word(m uint64) {
	v0, v1, v2, v3 := round(h.v0, h.v1, h.v2, h.v3^m)
	v0, h.v1, h.v2, h.v3 = round(v0, v1, v2, v3)
	h.v0 = v0 ^ m
}

// Add adds bytes: a word at a time, of which the first may complete what was added before.
func (h *Hash) Add(b []byte) {
	have := 8 * (h.n & 7) // bits of the tail
	h.n += uint64(len(b) &^ 7)
	for ; len(b) >= 8; b = b[8:] {
		m := binary.LittleEndian.Uint64(b)
		h.word(h.tail | m<<have)
		h.tail = m >> (64 - have) // nothing, if have is 0
	}
	for _, c := range b {
		h.tail |= uint64(c) << (8 * (h.n & 7))
		if h.n++; h.n&7 == 0 {
			h.word(h.tail)
			h.tail = 0
		}
	}
}

// AddUint64 adds a number.
func (h *Hash) AddUint64(v uint64) {
	var b [8]byte
	be.PutUint64(b[:], v)
	h.Add(b[:])
}

// AddAddr adds an address.
func (h *Hash) AddAddr(a *Addr) {
	h.Add(a.GID[:])
	h.AddUint64(uint64(a.QPN)<<32 | uint64(a.QKey))
}

// Sum ends the hash and returns it. It is never 0, which stands for none.
func (h *Hash) Sum() uint64 {
	h.word(h.tail | h.n<<56)
	h.v2 ^= 0xff
	v0, v1, v2, v3 := h.v0, h.v1, h.v2, h.v3
	for range 4 {
		v0, v1, v2, v3 = round(v0, v1, v2, v3)
	}
	return max(1, v0^v1^v2^v3)
}

// Seal returns the code of a Hello that goes to an address: over its headers, MAC left out,
// and the bytes of its part.
func Seal(k Key, to *Addr, headers, bytes []byte) uint64 {
	h := NewHash(k)
	h.AddAddr(to)
	h.Add(headers[:macOffset])
	h.Add(headers[macOffset+8:])
	h.Add(bytes)
	return h.Sum()
}

// SetMAC puts the code into an encoded Hello.
func SetMAC(headers []byte, mac uint64) { be.PutUint64(headers[macOffset:], mac) }
