package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

var linkTests = []selfTest{
	{feature: "requests of many goroutines", run: tryRequester},
	{feature: "completions by name, for protocols of one's own", run: tryDispatcher},
	{feature: "messages of many goroutines", run: tryReceiver},
	{feature: "end of a queue pair", run: tryEnd},
	{feature: "links: everything between an IP address and a READ", run: tryLink},
}

// requesting returns a pair with a requester on the first queue pair.
func (b *bench) requesting() (x, y *end, r *verbs.Requester, err error) {
	if x, y, err = b.pair(verbs.QPConfig{}, verbs.CQConfig{}); err != nil {
		return nil, nil, nil, err
	}
	r, err = verbs.NewRequester(x.qp, verbs.RequesterConfig{})
	r, err = keep(b, r, err)
	return x, y, r, err
}

// tryRequester has eight goroutines READ a word each, many times.
func tryRequester(b *bench) (string, error) {
	const goroutines, rounds = 8, 20
	x, y, r, err := b.requesting()
	if err != nil {
		return "", err
	}
	fill(y.mr.Bytes()[:8*goroutines])
	errs := make([]error, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for range rounds {
				mine := x.mr.Bytes()[8*g : 8*g+8]
				clear(mine)
				if errs[g] = r.Read(b.ctx, y.region().At(uint64(8*g)), x.mr.SGE(8*g, 8)); errs[g] == nil {
					errs[g] = sameBytes("a goroutine's READ", mine, y.mr.Bytes()[8*g:8*g+8])
				}
				if errs[g] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return "", errors.Join(errs...)
}

// named is an engine with tags that are places in the memory of its READs.
type named struct {
	waiters [4]verbs.Waiter
	errs    [4]error
}

func (n *named) Completed(tag uint64, wc *verbs.WC) {
	n.errs[tag] = wc.Err()
	n.waiters[tag].Wake()
}

func (n *named) Lost(error) {} // the waits end with the same error

// tryDispatcher READs four words, and waits for each in the opposite order.
func tryDispatcher(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	var n named
	d, err := x.qp.SendCQ().Dispatch(&n, len(n.waiters))
	if _, err = keep(b, d, err); err != nil {
		return "", err
	}
	batch, err := d.NewBatch(x.qp, len(n.waiters))
	if err != nil {
		return "", err
	}
	fill(y.mr.Bytes()[:8*len(n.waiters)])
	for i := range n.waiters {
		batch.Read(d.ID(uint64(i)), verbs.Signaled, y.region().At(uint64(8*i)), x.mr.SGE(8*i, 8))
	}
	_, found, err := d.PostPoll(batch, 0)
	found.Dispatch()
	for i := len(n.waiters) - 1; i >= 0 && err == nil; i-- {
		if err = d.Wait(b.ctx, &n.waiters[i]); err == nil {
			err = n.errs[i]
		}
	}
	if err != nil {
		return "", err
	}
	return "", sameBytes("READs by name", x.mr.Bytes()[:8*len(n.waiters)], y.mr.Bytes()[:8*len(n.waiters)])
}

// tryReceiver sends more messages than there are receives.
func tryReceiver(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	in, err := verbs.NewReceiver(y.qp, verbs.ReceiverConfig{Size: 256, Depth: 2})
	if _, err = keep(b, in, err); err != nil {
		return "", err
	}
	out, err := verbs.NewRequester(x.qp, verbs.RequesterConfig{})
	if _, err = keep(b, out, err); err != nil {
		return "", err
	}
	sent := make(chan error, 1)
	fill(x.mr.Bytes()[:256])
	go func() {
		for n := range 10 {
			if err := out.Send(b.ctx, x.mr.SGE(n, 200)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	buf := make([]byte, 256)
	for n := range 10 {
		m, err := in.Receive(b.ctx, buf)
		if err == nil {
			err = sameBytes(fmt.Sprint("message ", n), buf[:m.Len], x.mr.Bytes()[n:n+200])
		}
		if err != nil {
			return "", err
		}
	}
	return "", <-sent
}

// tryEnd has a request fail, which ends the queue pair with that cause.
func tryEnd(b *bench) (string, error) {
	x, y, r, err := b.requesting()
	if err != nil {
		return "", err
	}
	if err := x.qp.Err(); err != nil {
		return "", err
	}
	wrongKey := verbs.Remote{Addr: y.region().Addr, RKey: ^y.region().RKey}
	if err := must("a READ with a wrong key", r.Read(b.ctx, wrongKey, x.mr.SGE(0, 8)), verbs.WCRemoteAccess); err != nil {
		return "", err
	}
	select {
	case <-x.qp.Done():
	case <-time.After(time.Second):
		return "", fmt.Errorf("%w: the queue pair stands", errData)
	}
	return "", errors.Join(must("the end", x.qp.Err(), verbs.WCRemoteAccess),
		must("a request afterwards", r.Read(b.ctx, y.region().At(0), x.mr.SGE(0, 8)), verbs.WCRemoteAccess))
}

// tryLink READs a server's memory, with nothing but its address known.
func tryLink(b *bench) (string, error) {
	here, err := b.addr(b.here)
	if err != nil {
		return "", err
	}
	there, err := b.addr(b.there)
	if err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", netip.AddrPortFrom(there, 0).String())
	if err != nil {
		return "", err
	}
	memory := make([]byte, 4096)
	fill(memory)
	ctx, stop := context.WithCancel(b.ctx)
	failed, served := make(chan error, 1), make(chan error, 1)
	go func() {
		served <- verbs.ServeLinks(ctx, listener, verbs.LinkConfig{Setup: verbs.OfferMemory(memory, verbs.RemoteRead)},
			func(ctx context.Context, _ *verbs.Link) error { <-ctx.Done(); return ctx.Err() },
			func(_ net.Addr, err error) { failed <- err })
	}()
	b.defers(func() error { stop(); return <-served })
	l, err := verbs.DialLink(b.ctx, listener.Addr().String(), verbs.LinkConfig{
		Dialer: &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(here, 0))}})
	if _, err = keep(b, l, err); err != nil {
		return "", err
	}
	mr, err := l.AllocMR(len(memory), verbs.MRConfig{})
	if err != nil {
		return "", err
	}
	r, err := l.Requester()
	if err != nil {
		return "", err
	}
	if err := r.Read(b.ctx, l.Regions()[0].At(0), mr.SGE(0, len(memory))); err != nil {
		return "", err
	}
	return "", sameBytes("the server's memory", mr.Bytes(), memory)
}
