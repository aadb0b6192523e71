package main

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/experimental"
)

var atomicTests = []selfTest{
	{feature: "FETCH_ADD, CMP_SWAP", told: tellsAtomics, run: tryAtomics},
	{feature: "ATOMIC_WRITE", run: tryAtomicWrite},
	{feature: "FLUSH", run: tryFlush},
	{feature: "masked atomics, emulated", told: tellsAtomics, run: tryMasked},
}

func tellsAtomics(f verbs.Features) bool { return f.Atomic != verbs.AtomicNone }

// unsupported is a refusal that this program finds by itself.
func unsupported(why string) error { return fmt.Errorf("%w: %s", verbs.ErrUnsupported, why) }

func tryAtomics(b *bench) (string, error) {
	if !tellsAtomics(b.features) {
		return "", unsupported("the device tells that it has no atomics")
	}
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	word := y.region().At(8)
	if err := y.mr.Store64(8, 40); err != nil {
		return "", err
	}
	if err := x.do(3, func(b *verbs.Batch) {
		b.FetchAdd(1, verbs.Signaled, word, 2, x.mr.SGE(0, 8))
		b.CmpSwap(2, verbs.Signaled, word, 42, 7, x.mr.SGE(8, 8))   // succeeds
		b.CmpSwap(3, verbs.Signaled, word, 42, 99, x.mr.SGE(16, 8)) // finds 7
	}); err != nil {
		return "", err
	}
	for i, want := range []uint64{40, 42, 7} {
		err = errors.Join(err, same("an old value", verbs.Uint64(x.mr.Bytes(), 8*i), want))
	}
	return "atomicity: " + b.features.Atomic.String(), errors.Join(err, same("the word", verbs.Uint64(y.mr.Bytes(), 8), 7))
}

// unknownRequest makes a refusal of a request that the provider has taken, and
// the device or its driver does not know.
func unknownRequest(err error) error {
	if errors.Is(err, verbs.WCLocalQPOperation) || errors.Is(err, verbs.WCRemoteInvalid) {
		return fmt.Errorf("%w: the provider takes it, the driver does not: %w", verbs.ErrUnsupported, err)
	}
	return err
}

func tryAtomicWrite(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{Ops: verbs.OpAtomicWrite}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	const value = 0x1122334455667788
	if err := x.do(1, func(b *verbs.Batch) {
		b.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRAtomicWrite, Remote: y.region().At(64), Value: value})
	}); err != nil {
		return "", unknownRequest(err)
	}
	return "", same("the word", verbs.Uint64(y.mr.Bytes(), 64), value)
}

func tryFlush(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{Ops: experimental.OpFlush, Access: verbs.RemoteWrite | experimental.FlushableGlobal}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	mr, err := y.pd.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteWrite | experimental.FlushableGlobal})
	if _, err := keep(b, mr, err); err != nil {
		return "", err
	}
	fill(x.mr.Bytes()[:64])
	if err := x.do(1, func(b *verbs.Batch) {
		b.Write(1, 0, mr.Region().At(0), x.mr.SGE(0, 64))
		experimental.Flush(b, 2, verbs.Signaled, mr.Region().At(0), 64, experimental.FlushGlobal)
	}); err != nil {
		return "", unknownRequest(err)
	}
	return "", sameBytes("what was written", mr.Bytes()[:64], x.mr.Bytes()[:64])
}

func tryMasked(b *bench) (string, error) {
	if !tellsAtomics(b.features) {
		return "", unsupported("the device tells that it has no atomics")
	}
	return "", b.masked(verbs.QPConfig{}, false)
}

func tryNativeMasked(b *bench) (string, error) {
	return "", b.masked(verbs.QPConfig{Ops: verbs.OpMasked}, true)
}

// masked does one operation of each kind.
func (b *bench) masked(qc verbs.QPConfig, native bool) error {
	x, y, err := b.pair(qc, verbs.CQConfig{})
	if err != nil {
		return err
	}
	r, err := verbs.NewRequester(x.qp, verbs.RequesterConfig{})
	if r, err = keep(b, r, err); err != nil {
		return err
	}
	m, err := verbs.NewMasked(r, x.mr, 0, verbs.MaskedConfig{})
	if err != nil {
		return err
	}
	if err := errors.Join(same("native", m.Native(), native), y.mr.Store64(64, 0xff00)); err != nil {
		return err
	}
	at := y.region().At(64)
	now := func(want uint64) error { return same("the word", verbs.Uint64(y.mr.Bytes(), 64), want) }
	old, err := m.CmpSwap(b.ctx, at, verbs.MaskedCmpSwap{Compare: 0x0f00, CompareMask: 0x0f00, Swap: 0xab, SwapMask: 0xff})
	if err := errors.Join(err, same("the word before", old, 0xff00), now(0xffab)); err != nil {
		return err
	}
	old, err = m.FetchAdd(b.ctx, at, verbs.MaskedFetchAdd{Add: 0x0101, Boundary: 0x8080})
	if err := errors.Join(err, same("the word before", old, 0xffab), now(0x00ac)); err != nil {
		return err // the carry stays in its field
	}
	old, err = m.AddField(b.ctx, at, 8, 8, 3)
	return errors.Join(err, same("the field before", old, 0), now(0x03ac))
}
