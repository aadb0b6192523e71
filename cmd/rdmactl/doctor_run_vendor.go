package main

import (
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/experimental"
)

var vendorTests = []selfTest{
	// mlx5dv's report of masked atomics is not asked for; it has none of DC.
	{feature: "masked atomics, native", run: tryNativeMasked},
	{feature: "rate limit", told: func(f verbs.Features) bool { return f.MaxRate != 0 }, run: tryRate},
	{feature: "DC initiator, streams", told: func(f verbs.Features) bool { return f.Mlx5 != nil && f.Mlx5.Streams > 0 }, run: tryDCI},
	{feature: "DC target", told: func(f verbs.Features) bool { return f.Mlx5 != nil && f.Mlx5.Streams > 0 }, run: tryDCT},
	{feature: "EFA SRD", told: func(f verbs.Features) bool { return f.EFA != nil }, run: trySRD},
}

func tryRate(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	rate := max(b.features.MinRate, min(b.features.MaxRate, 1_000_000))
	if err := experimental.SetRate(x.qp, rate, 0, 0); err != nil {
		return "", err
	}
	fill(y.mr.Bytes()[:64])
	if err := x.reads(y.region(), y.mr.Bytes()); err != nil {
		return "", err
	}
	return "", experimental.SetRate(x.qp, 0, 0, 0)
}

const dcKey = 0x600df00d

// dcTarget makes a DC target and what it serves.
func (b *bench) dcTarget() (*end, error) {
	y, err := b.base(b.there, verbs.CQConfig{})
	if err != nil {
		return nil, err
	}
	srq, err := y.pd.CreateSRQ(verbs.SRQConfig{MaxWR: 16})
	if _, err := keep(b, srq, err); err != nil {
		return nil, err
	}
	if err := y.join(b.there.gid, verbs.QPConfig{Type: verbs.DCT, SRQ: srq, DCKey: dcKey, Access: b.access()}); err != nil {
		return nil, err
	}
	return y, y.qp.Activate()
}

func tryDCT(b *bench) (string, error) {
	y, err := b.dcTarget()
	if err != nil {
		return "", err
	}
	return "", b.initiates(y, 0)
}

func tryDCI(b *bench) (string, error) {
	streams, note := 0, "without streams, which it does not have"
	if b.features.Mlx5 != nil && b.features.Mlx5.Streams >= 4 {
		streams, note = 4, "4 streams"
	}
	// The initiator first: its refusal counts, not the target's.
	x, err := b.base(b.here, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	if err := x.join(b.here.gid, verbs.QPConfig{Type: verbs.DCI, Streams: streams}); err != nil {
		return "", err
	}
	y, err := b.dcTarget()
	if err != nil {
		return "", err
	}
	return note, b.initiates(y, streams)
}

// initiates writes to a DC target, by one stream or by all.
func (b *bench) initiates(y *end, streams int) error {
	x, err := b.base(b.here, verbs.CQConfig{})
	if err != nil {
		return err
	}
	if err := x.join(b.here.gid, verbs.QPConfig{Type: verbs.DCI, Streams: streams}); err != nil {
		return err
	}
	if err := x.qp.Activate(); err != nil {
		return err
	}
	to, err := x.dest(y)
	if err != nil {
		return err
	}
	n := max(streams, 1)
	fill(x.mr.Bytes()[:64*n])
	if err := x.do(n, func(b *verbs.Batch) {
		for i := range n {
			target := verbs.Target{AH: to.AH, QPN: y.qp.Num(), DCKey: dcKey}
			if streams > 0 {
				target.Stream = i + 1
			}
			b.SetTarget(target)
			b.Write(uint64(i), verbs.Signaled, y.region().At(uint64(64*i)), x.mr.SGE(64*i, 64))
		}
	}); err != nil {
		return err
	}
	return sameBytes("what was written", y.mr.Bytes()[:64*n], x.mr.Bytes()[:64*n])
}

// trySRD sends a message, and READs where the device can.
func trySRD(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{Type: verbs.SRD}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	if err := y.recv(1, 64); err != nil {
		return "", err
	}
	to, err := x.dest(y)
	if err != nil {
		return "", err
	}
	target := verbs.Target{AH: to.AH, QPN: to.QPN, QKey: to.QKey}
	fill(x.mr.Bytes()[:64])
	if err := x.do(1, func(b *verbs.Batch) {
		b.SetTarget(target)
		b.Send(1, verbs.Signaled, x.mr.SGE(0, 64))
	}); err != nil {
		return "", err
	}
	if _, err := y.done(1); err != nil {
		return "", err
	}
	if err := sameBytes("what was sent", y.mr.Bytes()[:64], x.mr.Bytes()[:64]); err != nil {
		return "", err
	}
	if b.features.EFA == nil || !b.features.EFA.Read {
		return "SEND; the device has no READ", nil
	}
	// The target of a READ knows the requester by an address handle of its own.
	if _, err := y.dest(x); err != nil {
		return "", err
	}
	if err := x.do(1, func(b *verbs.Batch) {
		b.SetTarget(target)
		b.Read(2, verbs.Signaled, y.region().At(0), x.mr.SGE(128, 64))
	}); err != nil {
		return "", err
	}
	return "SEND, READ", sameBytes("what was read", x.mr.Bytes()[128:192], y.mr.Bytes()[:64])
}
