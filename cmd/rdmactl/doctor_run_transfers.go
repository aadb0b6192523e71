package main

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

var transferTests = []selfTest{
	{feature: "SEND, RECV, immediate", run: trySend},
	{feature: "READ, WRITE, WRITE with immediate", run: tryReadWrite},
	{feature: "scatter/gather, inline, selective signalling, batches", run: tryBatches},
	{feature: "ibv_wr_* post path", run: tryExtendedPost},
	{feature: "unequal pieces", run: tryUnequal},
	{feature: "address handles", run: tryDatagrams},
	{feature: "address handle of a sender", run: tryReply},
}

func trySend(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	return "", x.sends(y)
}

// sends has x send two messages, the second with an immediate, and compares what
// comes.
func (x *end) sends(y *end) error {
	const size = 9000 // several packets
	if err := y.recv(2, size); err != nil {
		return err
	}
	fill(x.mr.Bytes()[:size])
	err := x.do(1, func(b *verbs.Batch) {
		b.Send(1, 0, x.mr.SGE(0, size))
		b.SendImm(2, verbs.Signaled, 0xcafe1234, x.mr.SGE(0, 10))
	})
	if err != nil {
		return err
	}
	wcs, err := y.done(2)
	if err != nil {
		return err
	}
	imm, _ := wcs[1].Imm()
	return errors.Join(same("the length", wcs[0].Len(), size), same("the immediate", imm, 0xcafe1234),
		sameBytes("what was sent", y.mr.Bytes()[:size], x.mr.Bytes()[:size]))
}

func tryReadWrite(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	return "", x.readsAndWrites(y)
}

func (x *end) readsAndWrites(y *end) error {
	for _, size := range []int{1, 64, 4097, 100_000} {
		want := make([]byte, size)
		fill(want)
		copy(x.mr.Bytes(), want)
		clear(y.mr.Bytes())
		if err := x.do(1, func(b *verbs.Batch) { b.Write(1, verbs.Signaled, y.region().At(16), x.mr.SGE(0, size)) }); err != nil {
			return err
		}
		if err := errors.Join(sameBytes("what was written", y.mr.Bytes()[16:16+size], want),
			same("the byte behind it", y.mr.Bytes()[16+size], 0)); err != nil {
			return err
		}
		clear(x.mr.Bytes())
		if err := x.do(1, func(b *verbs.Batch) { b.Read(2, verbs.Signaled, y.region().At(16), x.mr.SGE(100, size)) }); err != nil {
			return err
		}
		if err := sameBytes("what was read", x.mr.Bytes()[100:100+size], want); err != nil {
			return err
		}
	}
	if err := y.recv(1, 64); err != nil {
		return err
	}
	if err := x.do(1, func(b *verbs.Batch) { b.WriteImm(3, verbs.Signaled, 77, y.region().At(0), x.mr.SGE(100, 64)) }); err != nil {
		return err
	}
	wcs, err := y.done(1)
	if err != nil {
		return err
	}
	imm, _ := wcs[0].Imm()
	return errors.Join(same("the immediate", imm, 77), sameBytes("what was written", y.mr.Bytes()[:64], x.mr.Bytes()[100:164]))
}

// tryBatches: a batch of requests of which the last alone completes visibly,
// with pieces gathered and data inline.
func tryBatches(b *bench) (string, error) {
	pieces := max(min(b.features.MaxSGE, 3), 1)
	x, y, err := b.pair(verbs.QPConfig{MaxSendSGE: pieces, MaxInline: 16}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	fill(x.mr.Bytes()[:300])
	var list []verbs.SGE
	var want []byte
	for i := range pieces {
		list = append(list, x.mr.SGE(i*100, 10+i))
		want = append(want, x.mr.Bytes()[i*100:i*100+10+i]...)
	}
	err = x.do(1, func(b *verbs.Batch) {
		b.Write(1, 0, y.region().At(0), list...)
		for i := range 14 {
			b.WriteInline(2, 0, y.region().At(uint64(1000+i)), []byte{byte(i + 1)})
		}
		b.Write(3, verbs.Signaled, y.region().At(2000), x.mr.SGE(0, 8))
	})
	if err != nil {
		return "", err
	}
	err = sameBytes("the pieces", y.mr.Bytes()[:len(want)], want)
	for i := range 14 {
		err = errors.Join(err, same("inline data", y.mr.Bytes()[1000+i], byte(i+1)))
	}
	return fmt.Sprintf("%d pieces, %d bytes inline", pieces, x.qp.MaxInline()), err
}

func tryExtendedPost(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{Extended: true}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	if err := x.readsAndWrites(y); err != nil {
		return "", err
	}
	return "", x.sends(y)
}

func tryUnequal(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{Extended: true, MaxSendSGE: 2}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	fill(x.mr.Bytes()[:400])
	if err := x.do(1, func(b *verbs.Batch) {
		b.Write(1, verbs.Signaled, y.region().At(0), x.mr.SGE(0, 3), x.mr.SGE(3, 300))
	}); err != nil {
		return "", err
	}
	return "", sameBytes("the pieces", y.mr.Bytes()[:303], x.mr.Bytes()[:303])
}

func tryDatagrams(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{Type: verbs.UD}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	if err := y.recv(1, 256); err != nil {
		return "", err
	}
	to, err := x.dest(y)
	if err != nil {
		return "", err
	}
	return "", x.sendsTo(to, y)
}

// dest returns the way to a queue pair for datagrams.
func (x *end) dest(y *end) (verbs.Destination, error) {
	e, err := y.qp.Endpoint()
	if err != nil {
		return verbs.Destination{}, err
	}
	path, err := x.qp.PathTo(e, verbs.ConnectConfig{})
	if err != nil {
		return verbs.Destination{}, err
	}
	ah, err := x.pd.CreateAH(path)
	_, err = keep(x.bench, ah, err)
	return verbs.Destination{AH: ah, QPN: e.QPN, QKey: e.QKey}, err
}

// sendsTo sends one datagram to the first receive of y.
func (x *end) sendsTo(to verbs.Destination, y *end) error {
	fill(x.mr.Bytes()[:100])
	if err := x.do(1, func(b *verbs.Batch) { b.SendTo(1, verbs.Signaled, to, x.mr.SGE(0, 100)) }); err != nil {
		return err
	}
	wcs, err := y.done(1)
	if err != nil {
		return err
	}
	return errors.Join(same("the sender", wcs[0].SrcQP(), x.qp.Num()),
		sameBytes("the datagram", y.mr.Bytes()[verbs.GRHSize:verbs.GRHSize+100], x.mr.Bytes()[:100]))
}

// tryReply sends a datagram, and a reply to the sender that the datagram's completion and
// route header name.
func tryReply(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{Type: verbs.UD}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	// The receives of x lie where its datagram does not.
	back, err := x.qp.NewRecvBatch(1)
	if err != nil {
		return "", err
	}
	back.Recv(1, x.mr.SGE(4096, 256))
	if _, err := back.Post(); err != nil {
		return "", err
	}
	if err := y.recv(1, 256); err != nil {
		return "", err
	}
	to, err := x.dest(y)
	if err != nil {
		return "", err
	}
	if err := x.do(1, func(b *verbs.Batch) { b.SendTo(1, verbs.Signaled, to, x.mr.SGE(0, 100)) }); err != nil {
		return "", err
	}
	wcs, err := y.done(1)
	if err != nil {
		return "", err
	}
	ah, err := y.pd.CreateAHFromWC(&wcs[0], y.mr.Bytes()[:verbs.GRHSize], b.there.port)
	if _, err := keep(b, ah, err); err != nil {
		return "", err
	}
	fill(y.mr.Bytes()[1024:1124])
	sender := verbs.Destination{AH: ah, QPN: wcs[0].SrcQP(), QKey: verbs.DefaultQKey}
	if err := y.do(1, func(b *verbs.Batch) { b.SendTo(2, verbs.Signaled, sender, y.mr.SGE(1024, 100)) }); err != nil {
		return "", err
	}
	if _, err := x.done(1); err != nil {
		return "", err
	}
	return "", sameBytes("the reply", x.mr.Bytes()[4096+verbs.GRHSize:4096+verbs.GRHSize+100], y.mr.Bytes()[1024:1124])
}
