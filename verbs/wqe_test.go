//go:build linux && cgo

package verbs

import (
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/internal/testseed"
)

// TestMaskedWQEByHeaders: the entries are, byte for byte, those that a C program
// makes by rdma-core's headers.
func TestMaskedWQEByHeaders(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.New(t), 1))
	flip := func() bool { return r.IntN(2) == 0 }
	for range 2000 {
		op := maskedOp{add: flip(), bits32: flip(), operand: r.Uint64(), boundary: r.Uint64(), compare: r.Uint64(), compareMask: r.Uint64(), swapMask: r.Uint64()}
		m := standin.Masked{Add: op.add, Bits32: op.bits32, Signaled: flip(), Fence: flip(), QPN: r.Uint32() & 0xffffff,
			RKey: r.Uint32(), LKey: r.Uint32(), Addr: r.Uint64(), Result: r.Uint64(),
			Operand: op.operand, Boundary: op.boundary, Compare: op.compare, SwapMask: op.swapMask, CompareMask: op.compareMask}
		var to *Target
		if flip() {
			ah := &AH{}
			for i := range ah.av {
				ah.av[i] = byte(r.Uint32())
			}
			clear(ah.av[8:12]) // provider and kernel leave the number to the request
			to = &Target{AH: ah, QPN: 1 + r.Uint32()&0xffff, DCKey: r.Uint64(), Stream: r.IntN(1 << 16)}
			m.AV, m.DCT, m.DCKey, m.Stream = ah.av, to.QPN, to.DCKey, uint32(to.Stream)
		}
		flags := SendFlags(0)
		if m.Signaled {
			flags |= Signaled
		}
		if m.Fence {
			flags |= Fence
		}
		size := uint32(8)
		if op.bits32 {
			size = 4
		}
		var b [wqeMax]byte
		n := maskedWQE(b[:], m.QPN, to, flags, op, Remote{Addr: m.Addr, RKey: m.RKey}, SGE{Addr: m.Result, Length: size, LKey: m.LKey})
		require.Equal(t, hex.EncodeToString(m.Entry()), hex.EncodeToString(b[:n]), "%+v", m)
	}
}
