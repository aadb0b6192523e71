package verbs

import (
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bitwise is masked fetch and add one bit at a time: a full adder with a carry that
// ends at each boundary.
func bitwise(old, add, boundary uint64) (sum uint64) {
	carry := uint64(0)
	for i := range 64 {
		a, b := old>>i&1, add>>i&1
		sum |= (a ^ b ^ carry) << i
		carry = a&b | carry&(a|b)
		if boundary>>i&1 != 0 {
			carry = 0
		}
	}
	return sum
}

func TestMaskedMeaning(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	// Words with few or many bits set reach the corners that uniform ones miss.
	word := func() uint64 {
		switch r.IntN(4) {
		case 0:
			return 0
		case 1:
			return ^uint64(0)
		case 2:
			return r.Uint64() & r.Uint64() & r.Uint64()
		}
		return r.Uint64()
	}
	for range 100_000 {
		old, add, boundary := word(), word(), word()
		got, done := MaskedFetchAdd{Add: add, Boundary: boundary}.op().apply(old)
		if !done || got != bitwise(old, add, boundary) {
			t.Fatalf("%#x + %#x, boundary %#x: %#x, %v", old, add, boundary, got, done)
		}

		c := MaskedCmpSwap{Compare: word(), CompareMask: word(), Swap: word(), SwapMask: word()}
		got, done = c.op().apply(old)
		want := old
		if equal := (old^c.Compare)&c.CompareMask == 0; equal != done {
			t.Fatalf("%+v on %#x: done is %v", c, old, done)
		}
		if done {
			want = old&^c.SwapMask | c.Swap&c.SwapMask
		}
		if got != want {
			t.Fatalf("%+v on %#x: %#x, not %#x", c, old, got, want)
		}
	}
}

// TestMasked32: an operation on one half of a word leaves the other alone.
func TestMasked32(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		old, shift := r.Uint64(), uint(r.IntN(2)*32)
		other := uint64(0xffffffff) << (32 - shift)
		add := MaskedFetchAdd{Add: uint64(r.Uint32()), Boundary: uint64(r.Uint32() & r.Uint32())}.op()
		got, _ := add.in64(shift).apply(old)
		half := add
		half.bits32 = true
		want, _ := half.apply(old >> shift & 0xffffffff)
		if old&other != got&other || uint32(want) != uint32(got>>shift) {
			t.Fatalf("%+v on %#x, shift %d: %#x", add, old, shift, got)
		}

		cas := MaskedCmpSwap{Compare: uint64(r.Uint32()), CompareMask: uint64(r.Uint32() & r.Uint32() & r.Uint32()), Swap: uint64(r.Uint32()), SwapMask: uint64(r.Uint32())}.op()
		got, done := cas.in64(shift).apply(old)
		want, wantDone := cas.apply(old >> shift & 0xffffffff)
		if old&other != got&other || done != wantDone || uint32(want) != uint32(got>>shift) {
			t.Fatalf("%+v on %#x, shift %d: %#x, %v", cas, old, shift, got, done)
		}
	}
}

// TestMaskedWQE: the bytes of the entries, worked out by hand from the layout
// in wqe.go: remote address 0x1122334455667788, rkey 0xa1a2a3a4, queue pair
// 0x123456, result of lkey 0xb1b2b3b4 at 0x8877665544332211.
func TestMaskedWQE(t *testing.T) {
	at := Remote{Addr: 0x1122334455667788, RKey: 0xa1a2a3a4}
	cas := MaskedCmpSwap{Swap: 0x0101010102020202, Compare: 0x0303030304040404, SwapMask: 0x0505050506060606, CompareMask: 0x0707070708080808}.op()
	add := MaskedFetchAdd{Add: 0x0101010102020202, Boundary: 0x8080808040404040}.op()
	bits32 := func(o maskedOp) maskedOp { o.bits32 = true; return o }
	const remote = "1122334455667788 a1a2a3a4 00000000"
	for _, c := range []struct {
		name   string
		op     maskedOp
		flags  SendFlags
		length uint32
		want   string
	}{
		{"compare and swap, 64 bits", cas, Signaled, 8,
			"09000014 12345605 00000008 00000000" + remote +
				"0101010102020202 0303030304040404 0505050506060606 0707070708080808" + "00000008 b1b2b3b4 8877665544332211"},
		{"compare and swap, 32 bits", bits32(cas), 0, 4,
			"08000014 12345604 00000000 00000000" + remote + "02020202 04040404 06060606 08080808" + "00000004 b1b2b3b4 8877665544332211"},
		{"fetch and add, 64 bits", add, Signaled | Fence, 8,
			"09000015 12345604 00000088 00000000" + remote + "0101010102020202 8080808040404040" + "00000008 b1b2b3b4 8877665544332211"},
		{"fetch and add, 32 bits", bits32(add), Signaled, 4,
			"08000015 12345604 00000008 00000000" + remote + "02020202 40404040 0000000000000000" + "00000004 b1b2b3b4 8877665544332211"},
	} {
		var b [wqeMax]byte
		n := maskedWQE(b[:], 0x123456, nil, c.flags, c.op, at, SGE{Addr: 0x8877665544332211, Length: c.length, LKey: 0xb1b2b3b4})
		require.Equal(t, strings.ReplaceAll(c.want, " ", ""), hex.EncodeToString(b[:n]), c.name)
	}
}
