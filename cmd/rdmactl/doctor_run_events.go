package main

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

var eventTests = []selfTest{
	{feature: "asynchronous events", run: tryAsync},
	{feature: "drain", run: tryDrain},
}

// tryAsync needs an event that touches nothing of others: that of a shared
// receive queue that runs short.
func tryAsync(b *bench) (string, error) {
	if b.features.MaxSRQ == 0 {
		return "", notTried("without shared receive queues nothing raises an event that leaves ports and peers alone")
	}
	x, err := b.base(b.here, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	if err := x.join(b.here.gid, verbs.QPConfig{}); err != nil {
		return "", err
	}
	y, err := b.base(b.there, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	srq, err := y.pd.CreateSRQ(verbs.SRQConfig{MaxWR: 16})
	if _, err := keep(b, srq, err); err != nil {
		return "", err
	}
	if err := y.join(b.there.gid, verbs.QPConfig{SRQ: srq}); err != nil {
		return "", err
	}
	if err := connect(x.qp, y.qp); err != nil {
		return "", err
	}
	recv, err := srq.NewRecvBatch(2)
	if err != nil {
		return "", err
	}
	recv.Recv(1, y.mr.SGE(0, 64))
	recv.Recv(2, y.mr.SGE(64, 64))
	if _, err := recv.Post(); err != nil {
		return "", err
	}
	events := y.dev.Events(b.ctx)
	if err := srq.Arm(2); err != nil {
		return "", err
	}
	if err := x.do(1, func(b *verbs.Batch) { b.Send(1, verbs.Signaled, x.mr.SGE(0, 8)) }); err != nil {
		return "", err
	}
	for ev := range events {
		if ev.Type == verbs.EventSRQLimit && ev.SRQ == srq && ev.Device == y.dev {
			return "the limit of a shared receive queue", nil
		}
	}
	return "", fmt.Errorf("no event came: %w", b.ctx.Err())
}

// tryDrain: what is in a queue pair is flushed, all of it.
func tryDrain(b *bench) (string, error) {
	x, _, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	const n = 4
	if err := x.recv(n, 64); err != nil {
		return "", err
	}
	flushed := 0
	err = x.qp.Drain(b.ctx, func(wc *verbs.WC) {
		if wc.Status() == verbs.WCFlushed {
			flushed++
		}
	})
	if err != nil {
		return "", err
	}
	return "", same("the number of flushed receives", flushed, n)
}
