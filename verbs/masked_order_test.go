//go:build linux

package verbs_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// maskedStep is one operation with its reply, for a check of linearizability.
type maskedStep struct {
	add         verbs.MaskedFetchAdd
	cas         verbs.MaskedCmpSwap
	isAdd       bool
	old         uint64
	call, reply int64
}

type maskedHistory []maskedStep

var began = time.Now()

func (s *maskedStep) begin() { s.call = int64(time.Since(began)) }

func (s *maskedStep) end(old uint64) { s.old, s.reply = old, int64(time.Since(began)) }

func (s *maskedStep) do(ctx context.Context, m *verbs.Masked, at verbs.Remote) (uint64, error) {
	if s.isAdd {
		return m.FetchAdd(ctx, at, s.add)
	}
	return m.CmpSwap(ctx, at, s.cas)
}

// randomMasked uses few bits, so that operations meet.
func randomMasked(r *rand.Rand) maskedStep {
	if r.IntN(2) == 0 {
		return maskedStep{isAdd: true, add: verbs.MaskedFetchAdd{Add: r.Uint64() & 0x0707, Boundary: []uint64{0, 0x80, 0x8080, ^uint64(0)}[r.IntN(4)]}}
	}
	return maskedStep{cas: verbs.MaskedCmpSwap{Compare: r.Uint64(), CompareMask: []uint64{0, 1, 3, 0x100}[r.IntN(4)],
		Swap: r.Uint64(), SwapMask: []uint64{0xff, 0xff00, 0x0f0f}[r.IntN(3)]}}
}

// sequential is the meaning of the operations, written apart from the code
// under test.
func (s maskedStep) sequential(word uint64) uint64 {
	if !s.isAdd {
		if word&s.cas.CompareMask == s.cas.Compare&s.cas.CompareMask {
			return word&^s.cas.SwapMask | s.cas.Swap&s.cas.SwapMask
		}
		return word
	}
	var sum, carry uint64
	for i := range 64 {
		bits := word>>i&1 + s.add.Add>>i&1 + carry
		sum |= bits & 1 << i
		carry = bits >> 1
		if s.add.Boundary>>i&1 == 1 {
			carry = 0
		}
	}
	return sum
}

// order looks for an order of all operations, in accord with time, in which
// each returns what the one before left; the last leaves the word as found.
func order(history []maskedHistory, last uint64) porcupine.CheckResult {
	model := porcupine.Model{
		Init: func() any { return uint64(0) },
		Step: func(state, input, output any) (bool, any) {
			s := input.(maskedStep)
			word := state.(uint64)
			return output.(uint64) == word, s.sequential(word)
		},
		Equal: func(a, b any) bool { return a == b },
	}
	var ops []porcupine.Operation
	end := int64(0)
	for client, steps := range history {
		for _, s := range steps {
			ops = append(ops, porcupine.Operation{ClientId: client, Input: s, Call: s.call, Output: s.old, Return: s.reply})
			end = max(end, s.reply)
		}
	}
	ops = append(ops, porcupine.Operation{ClientId: len(history), Input: maskedStep{isAdd: true}, Call: end + 1, Output: last, Return: end + 2})
	return porcupine.CheckOperationsTimeout(model, ops, time.Minute)
}

func checkOrder(t *testing.T, history []maskedHistory, last uint64) {
	t.Helper()
	require.Equal(t, porcupine.Ok, order(history, last), "no legal order: %v, last %#x", history, last)
}

// TestOrderCheckCanFail: the check refuses a lost update.
func TestOrderCheckCanFail(t *testing.T) {
	one := maskedStep{isAdd: true, add: verbs.MaskedFetchAdd{Add: 1}}
	at := func(s maskedStep, old uint64, call, reply int64) maskedStep {
		s.old, s.call, s.reply = old, call, reply
		return s
	}
	require.Equal(t, porcupine.Ok, order([]maskedHistory{{at(one, 0, 0, 10)}, {at(one, 1, 0, 10)}}, 2))
	require.Equal(t, porcupine.Illegal, order([]maskedHistory{{at(one, 0, 0, 10)}, {at(one, 0, 0, 10)}}, 1))
	require.Equal(t, porcupine.Illegal, order([]maskedHistory{{at(one, 1, 0, 10)}, {at(one, 0, 20, 30)}}, 2), "against time")
}
