package wire

import "math/bits"

// Key is of SipHash.
type Key [2]uint64

// Hash is SipHash-2-4: a function of a key that nobody can tell from a random one
// without it. It makes cookies and the codes of packets that come with a key.
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

func (h *Hash) round() {
	h.v0 += h.v1
	h.v1 = bits.RotateLeft64(h.v1, 13) ^ h.v0
	h.v0 = bits.RotateLeft64(h.v0, 32)
	h.v2 += h.v3
	h.v3 = bits.RotateLeft64(h.v3, 16) ^ h.v2
	h.v0 += h.v3
	h.v3 = bits.RotateLeft64(h.v3, 21) ^ h.v0
	h.v2 += h.v1
	h.v1 = bits.RotateLeft64(h.v1, 17) ^ h.v2
	h.v2 = bits.RotateLeft64(h.v2, 32)
}

func (h *Hash) word(m uint64) {
	h.v3 ^= m
	h.round()
	h.round()
	h.v0 ^= m
}

// Add adds bytes.
func (h *Hash) Add(b []byte) {
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

// Sum ends the hash. It is never 0, which stands for none.
func (h *Hash) Sum() uint64 {
	h.word(h.tail | h.n<<56)
	h.v2 ^= 0xff
	for range 4 {
		h.round()
	}
	return max(1, h.v0^h.v1^h.v2^h.v3)
}

// Seal is the code of a Hello that goes to an address: of its headers, MAC left out,
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
