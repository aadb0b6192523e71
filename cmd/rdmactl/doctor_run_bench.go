package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// bench is what one self-test works on. Everything made on it is closed when
// the test ends, the last first.
type bench struct {
	ctx         context.Context
	here, there place
	features    verbs.Features

	mu      sync.Mutex // a listener's side makes objects too
	closers []func() error
}

func (b *bench) defers(f func() error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closers = append(b.closers, f)
}

func (b *bench) close() error {
	var errs []error
	for _, f := range slices.Backward(b.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// keep closes what a call has made with the test, if it has.
func keep[T interface{ Close() error }](b *bench, v T, err error) (T, error) {
	if err == nil {
		b.defers(v.Close)
	}
	return v, err
}

// same requires two values to be equal.
func same[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%w: %s is %v, not %v", errData, what, got, want)
	}
	return nil
}

// sameBytes requires data to have arrived.
func sameBytes(what string, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Errorf("%w: byte %d of %d of %s is %#x, not %#x", errData, i, len(want), what, got[i], want[i])
		}
	}
	return fmt.Errorf("%w: %d bytes of %s, not %d", errData, len(got), what, len(want))
}

// must requires an error of that kind.
func must(what string, err, kind error) error {
	if errors.Is(err, kind) {
		return nil
	}
	return fmt.Errorf("%w: %s: got %v, not %v", errData, what, err, kind)
}

func fill(p []byte) {
	for i := range p {
		p[i] = byte(rand.Uint32())
	}
}

// end is one end of a connection.
type end struct {
	*bench
	dev *verbs.Device
	pd  *verbs.PD
	cq  *verbs.CQ
	mr  *verbs.MR
	qp  *verbs.QP
}

const endSize = 256 << 10

// access returns every right to a region that the device can give.
func (b *bench) access() (a verbs.Access) {
	efa := b.features.EFA
	if efa == nil || efa.Read {
		a |= verbs.RemoteRead
	}
	if efa == nil || efa.Write {
		a |= verbs.RemoteWrite
	}
	if tellsAtomics(b.features) {
		a |= verbs.RemoteAtomic
	}
	return a
}

func (b *bench) open(p place) (*verbs.Device, error) {
	d, err := verbs.Open(p.device, verbs.DeviceConfig{})
	return keep(b, d, err)
}

// base makes an end without a queue pair.
func (b *bench) base(p place, cc verbs.CQConfig) (*end, error) {
	d, err := b.open(p)
	if err != nil {
		return nil, err
	}
	return b.baseOn(d, cc)
}

func (b *bench) baseOn(d *verbs.Device, cc verbs.CQConfig) (e *end, err error) {
	e = &end{bench: b, dev: d}
	if e.pd, err = d.AllocPD(); err != nil {
		return nil, err
	}
	b.defers(e.pd.Close)
	if e.cq, err = d.CreateCQ(cc); err != nil {
		return nil, err
	}
	b.defers(e.cq.Close)
	if e.mr, err = e.pd.AllocMR(endSize, verbs.MRConfig{Access: b.access()}); err != nil {
		return nil, err
	}
	b.defers(e.mr.Close)
	return e, nil
}

// join makes a queue pair of the end's own.
func (e *end) join(gid verbs.GIDEntry, qc verbs.QPConfig) (err error) {
	qc.SendCQ, qc.GID = e.cq, gid
	q, err := e.pd.CreateQP(qc)
	e.qp, err = keep(e.bench, q, err)
	return err
}

// ends makes two ends with queue pairs that are not connected yet.
func (b *bench) ends(qc verbs.QPConfig, cc verbs.CQConfig) (x, y *end, err error) {
	if x, err = b.base(b.here, cc); err != nil {
		return nil, nil, err
	}
	if y, err = b.base(b.there, cc); err != nil {
		return nil, nil, err
	}
	if err = x.join(b.here.gid, qc); err != nil {
		return nil, nil, err
	}
	return x, y, y.join(b.there.gid, qc)
}

// pair makes two connected ends; of UD queue pairs two that work.
func (b *bench) pair(qc verbs.QPConfig, cc verbs.CQConfig) (x, y *end, err error) {
	if x, y, err = b.ends(qc, cc); err != nil {
		return nil, nil, err
	}
	return x, y, connect(x.qp, y.qp)
}

func connect(x, y *verbs.QP) error {
	if x.Type() == verbs.UD || x.Type() == verbs.SRD {
		return errors.Join(x.Activate(), y.Activate())
	}
	ex, err := x.Endpoint()
	if err != nil {
		return err
	}
	ey, err := y.Endpoint()
	if err != nil {
		return err
	}
	// A finite number of retries: a path that loses everything must show.
	cfg := verbs.ConnectConfig{Retries: 6}
	return errors.Join(x.Connect(ey, cfg), y.Connect(ex, cfg))
}

func (e *end) region() verbs.Region { return e.mr.Region() }

// recv posts n receives of size bytes, receive i at offset i * size.
func (e *end) recv(n, size int) error {
	b, err := e.qp.NewRecvBatch(n)
	if err != nil {
		return err
	}
	for i := range n {
		b.Recv(uint64(i), e.mr.SGE(i*size, size))
	}
	_, err = b.Post()
	return err
}

// wait takes n completions, whatever their status.
func (e *end) wait(n int) ([]verbs.WC, error) {
	out := make([]verbs.WC, n)
	for got := 0; got < n; {
		m, err := e.cq.Wait(e.ctx, out[got:])
		if err != nil {
			return nil, fmt.Errorf("after %d of %d completions: %w", got, n, err)
		}
		got += m
	}
	return out, nil
}

// done takes n completions of requests that succeeded.
func (e *end) done(n int) ([]verbs.WC, error) {
	wcs, err := e.wait(n)
	for i := range wcs {
		err = errors.Join(err, wcs[i].Err())
	}
	return wcs, err
}

// post posts what add adds, without waiting.
func (e *end) post(add func(*verbs.Batch)) error {
	b, err := e.qp.NewBatch(16)
	if err != nil {
		return err
	}
	add(b)
	_, err = b.Post()
	return err
}

// do posts what add adds, and waits for n completions of requests that succeed.
func (e *end) do(n int, add func(*verbs.Batch)) error {
	if err := e.post(add); err != nil {
		return err
	}
	_, err := e.done(n)
	return err
}

// fails posts what add adds, one signaled request that must not succeed.
func (e *end) fails(what string, add func(*verbs.Batch)) error {
	if err := e.post(add); err != nil {
		return err
	}
	wcs, err := e.wait(1)
	if err == nil && wcs[0].Err() == nil {
		err = fmt.Errorf("%w: %s succeeded", errData, what)
	}
	return err
}

// reads READs 64 bytes of a region and compares them.
func (x *end) reads(from verbs.Region, want []byte) error {
	clear(x.mr.Bytes()[:64])
	if err := x.do(1, func(b *verbs.Batch) { b.Read(1, verbs.Signaled, from.At(0), x.mr.SGE(0, 64)) }); err != nil {
		return err
	}
	return sameBytes("what was read", x.mr.Bytes()[:64], want[:64])
}
