package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

var completionTests = []selfTest{
	{feature: "completion queue, polled", run: tryPolled},
	{feature: "completion events in the netpoller", run: tryEvents},
	{feature: "solicited events", run: trySolicited},
	{feature: "extended completion queue", run: tryExtendedCQ},
	{feature: "single-threaded completion queue", run: transfersBy(verbs.CQConfig{SingleThreaded: true})},
	{feature: "completion queue that ignores overruns", run: transfersBy(verbs.CQConfig{IgnoreOverrun: true})},
	{feature: "timestamps", told: func(f verbs.Features) bool { return f.TimestampMask != 0 }, run: tryTimestamps},
	{feature: "device clock", run: tryClock},
	{feature: "moderation", told: func(f verbs.Features) bool { return f.MaxModerate != 0 }, run: tryModeration},
	{feature: "resize", run: tryResize},
}

// polls takes completions by f until there are n.
func (e *end) polls(n int, f func() (int, error)) error {
	for got := 0; got < n; runtime.Gosched() {
		m, err := f()
		if err != nil {
			return err
		}
		got += m
		if m == 0 && e.ctx.Err() != nil {
			return fmt.Errorf("after %d of %d completions: %w", got, n, e.ctx.Err())
		}
	}
	return nil
}

// transfersBy tries transfers that complete in queues of that kind.
func transfersBy(cc verbs.CQConfig) func(*bench) (string, error) {
	return func(b *bench) (string, error) {
		x, y, err := b.pair(verbs.QPConfig{}, cc)
		if err != nil {
			return "", err
		}
		return "", errors.Join(x.readsAndWrites(y), x.sends(y))
	}
}

func tryPolled(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{PollOnly: true})
	if err != nil {
		return "", err
	}
	const rounds = 200
	var wcs [1]verbs.WC
	batch, err := x.qp.NewBatch(1)
	if err != nil {
		return "", err
	}
	start := time.Now()
	for i := range rounds {
		batch.Read(uint64(i), verbs.Signaled, y.region().At(0), x.mr.SGE(0, 64))
		if _, err := batch.Post(); err != nil {
			return "", err
		}
		if err := x.polls(1, func() (int, error) { return x.cq.PollSpin(wcs[:], 16) }); err != nil {
			return "", err
		}
		if err := errors.Join(wcs[0].Err(), same("its number", wcs[0].ID(), uint64(i))); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("READ of 64 bytes: %v (mean of %d)", round(time.Since(start)/rounds), rounds), nil
}

func tryEvents(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{Spin: -1})
	if err != nil {
		return "", err
	}
	const rounds = 50
	if err := y.recv(rounds, 64); err != nil {
		return "", err
	}
	start := time.Now()
	for i := range rounds {
		woken := make(chan error, 1)
		go func() {
			_, err := y.done(1)
			woken <- err
		}()
		err := x.do(1, func(b *verbs.Batch) { b.Send(uint64(i), verbs.Signaled, x.mr.SGE(0, 8)) })
		if err := errors.Join(err, <-woken); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("SEND of 8 bytes: %v (mean of %d)", round(time.Since(start)/rounds), rounds), nil
}

// trySolicited: a sleeper for solicited events sleeps through a message that
// asks for none. It may not sleep yet when that comes, and finds it by polling:
// then it gets more time.
func trySolicited(b *bench) (string, error) {
	for _, pause := range []time.Duration{20, 100, 500} {
		slept, err := b.sleepsThrough(pause * time.Millisecond)
		if err != nil || slept {
			return "", err
		}
	}
	return "", fmt.Errorf("%w: woken by a message that asks for no event", errData)
}

func (b *bench) sleepsThrough(pause time.Duration) (slept bool, err error) {
	x, err := b.base(b.here, verbs.CQConfig{})
	if err != nil {
		return false, err
	}
	y, err := b.base(b.there, verbs.CQConfig{SolicitedOnly: true, Spin: -1})
	if err != nil {
		return false, err
	}
	if err := errors.Join(x.join(b.here.gid, verbs.QPConfig{}), y.join(b.there.gid, verbs.QPConfig{})); err != nil {
		return false, err
	}
	if err := errors.Join(connect(x.qp, y.qp), y.recv(2, 64)); err != nil {
		return false, err
	}
	type woke struct {
		n   int
		err error
	}
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	woken := make(chan woke, 1)
	go func() {
		wcs := make([]verbs.WC, 2)
		n, err := y.cq.Wait(ctx, wcs)
		woken <- woke{n, err}
	}()
	time.Sleep(pause)
	err = x.do(1, func(b *verbs.Batch) { b.Send(1, verbs.Signaled, x.mr.SGE(0, 8)) })
	if err == nil {
		time.Sleep(pause)
		err = x.do(1, func(b *verbs.Batch) { b.Send(2, verbs.Signaled|verbs.Solicited, x.mr.SGE(0, 8)) })
	}
	if err != nil {
		cancel()
		<-woken
		return false, err
	}
	a := <-woken
	return a.n == 2, a.err
}

// pollEx takes n completions of an extended queue.
func (e *end) pollEx(n int) ([]verbs.WCEx, error) {
	var out []verbs.WCEx
	buf := make([]verbs.WCEx, n)
	err := e.polls(n, func() (int, error) {
		m, err := e.cq.PollEx(buf[:n-len(out)])
		out = append(out, buf[:m]...)
		return m, err
	})
	for i := range out {
		err = errors.Join(err, out[i].Err())
	}
	return out, err
}

func tryExtendedCQ(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{Fields: verbs.FieldsStandard})
	if err != nil {
		return "", err
	}
	if err := y.recv(1, 64); err != nil {
		return "", err
	}
	if err := x.post(func(b *verbs.Batch) { b.SendImm(1, verbs.Signaled, 7, x.mr.SGE(0, 5)) }); err != nil {
		return "", err
	}
	if _, err := x.pollEx(1); err != nil {
		return "", err
	}
	wcs, err := y.pollEx(1)
	if err != nil {
		return "", err
	}
	imm, _ := wcs[0].Imm()
	return "", errors.Join(same("the immediate", imm, 7), same("the length", wcs[0].Len(), 5))
}

func tryTimestamps(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{Fields: verbs.FieldsStandard | verbs.FieldTimestamp})
	if err != nil {
		return "", err
	}
	for i := range 2 {
		if err := x.post(func(b *verbs.Batch) { b.Read(uint64(i), verbs.Signaled, y.region().At(0), x.mr.SGE(0, 64)) }); err != nil {
			return "", err
		}
	}
	wcs, err := x.pollEx(2)
	if err != nil {
		return "", err
	}
	mask := b.features.TimestampMask
	ticks := (wcs[1].Timestamp() - wcs[0].Timestamp()) & mask
	if wcs[0].Timestamp() == 0 || ticks > mask/2 {
		return "", fmt.Errorf("%w: timestamps %d and %d", errData, wcs[0].Timestamp(), wcs[1].Timestamp())
	}
	return fmt.Sprintf("%d ticks of %d kHz between two READs", ticks, b.features.ClockKHz), nil
}

func tryClock(b *bench) (string, error) {
	d, err := b.open(b.here)
	if err != nil {
		return "", err
	}
	first, err := d.Clock()
	if err != nil {
		return "", err
	}
	const pause = 20 * time.Millisecond
	time.Sleep(pause)
	second, err := d.Clock()
	if err == nil && second == first {
		err = fmt.Errorf("%w: the clock stands at %d", errData, first)
	}
	return "", err
}

func tryModeration(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	if err := x.cq.Moderate(4, 100*time.Microsecond); err != nil {
		return "", err
	}
	fill(y.mr.Bytes()[:64])
	return "", x.reads(y.region(), y.mr.Bytes())
}

func tryResize(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{Depth: 16})
	if err != nil {
		return "", err
	}
	const n, depth = 8, 500
	err = x.post(func(b *verbs.Batch) {
		for i := range n {
			b.Write(uint64(i), verbs.Signaled, y.region().At(0), x.mr.SGE(0, 8))
		}
	})
	if err != nil {
		return "", err
	}
	if err := x.cq.Resize(depth); err != nil {
		return "", err
	}
	wcs, err := x.done(n)
	for i := range wcs {
		err = errors.Join(err, same("the completion's number", wcs[i].ID(), uint64(i)))
	}
	if err == nil && x.cq.Depth() < depth {
		err = fmt.Errorf("%w: depth %d after resizing to %d", errData, x.cq.Depth(), depth)
	}
	return "", err
}
