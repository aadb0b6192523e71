package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/experimental"
)

func tellsOnDemand(f verbs.Features) bool { return f.OnDemand }

var memoryTests = []selfTest{
	{feature: "mapped memory, huge pages", run: tryMapped},
	{feature: "caller's memory, pinned", run: tryPinned},
	{feature: "read-only memory, chosen address", run: tryReadOnly},
	{feature: "dmabuf", run: tryDMABuf},
	{feature: "on-demand paging", told: tellsOnDemand, run: tryOnDemand},
	// Implicit on-demand paging and prefetching are further capabilities.
	{feature: "implicit on-demand paging", run: tryAddressSpace},
	{feature: "prefetch", run: tryPrefetch},
	{feature: "re-registration", run: tryReregister},
	{feature: "memory windows, type 1", told: func(f verbs.Features) bool { return f.Window1 }, run: tryWindow1},
	{feature: "memory windows, type 2", told: func(f verbs.Features) bool { return f.Window2 }, run: tryWindow2},
	{feature: "SEND with invalidate", run: trySendInvalidate},
	{feature: "device memory", told: func(f verbs.Features) bool { return f.DeviceMemory > 0 }, run: tryDeviceMemory},
	{feature: "null memory region", run: tryNullMR},
}

// readsInto has x READ from y into the first 64 bytes of a region of x.
func (x *end) readsInto(mr *verbs.MR, data []byte, y *end) error {
	fill(y.mr.Bytes()[:64])
	if err := x.do(1, func(b *verbs.Batch) { b.Read(1, verbs.Signaled, y.region().At(0), mr.SGE(0, 64)) }); err != nil {
		return err
	}
	return sameBytes("what was read", data[:64], y.mr.Bytes()[:64])
}

func tryMapped(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	mr, err := x.pd.AllocMR(4096, verbs.MRConfig{})
	if _, err := keep(b, mr, err); err != nil {
		return "", err
	}
	if err := x.readsInto(mr, mr.Bytes(), y); err != nil {
		return "", err
	}
	huge, err := x.pd.AllocMR(2<<20, verbs.MRConfig{Pages: verbs.PagesHuge})
	if err != nil {
		return "without huge pages: " + err.Error(), nil
	}
	b.defers(huge.Close)
	return "", x.readsInto(huge, huge.Bytes(), y)
}

func tryPinned(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	buf := make([]byte, 16<<10)
	mr, err := x.pd.RegisterMR(buf, verbs.MRConfig{})
	if _, err := keep(b, mr, err); err != nil {
		return "", err
	}
	runtime.GC()
	return "", x.readsInto(mr, buf, y)
}

// tryReadOnly has memory READ under an address of the program's choice, and a
// WRITE to it refused.
func tryReadOnly(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	const address = 1 << 32
	mr, err := y.pd.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteRead, ReadOnly: true, Addr: address})
	if _, err := keep(b, mr, err); err != nil {
		return "", err
	}
	if err := same("the address", mr.Region().Addr, address); err != nil {
		return "", err
	}
	fill(mr.Bytes()[:64])
	if err := x.reads(mr.Region(), mr.Bytes()); err != nil {
		return "", err
	}
	at := mr.Region().At(0)
	return "", x.fails("a WRITE to it", func(b *verbs.Batch) { b.Write(1, verbs.Signaled, at, x.mr.SGE(0, 8)) })
}

// tryDMABuf has no dmabuf, which only another device's driver can make. A
// device that lacks the call says so whatever the file is.
func tryDMABuf(b *bench) (string, error) {
	e, err := b.base(b.here, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		return "", err
	}
	defer f.Close()
	mr, err := experimental.RegisterDMABuf(e.pd, f, 0, 4096, verbs.MRConfig{})
	if err == nil {
		return "", errors.Join(fmt.Errorf("%w: %s was taken for a dmabuf", errData, os.DevNull), mr.Close())
	}
	if !errors.Is(err, verbs.ErrUnsupported) {
		err = notTried("the device has the call, and there is no dmabuf at hand")
	}
	return "", err
}

func tryOnDemand(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	mr, err := x.pd.AllocMR(4096, verbs.MRConfig{Access: experimental.OnDemand})
	if _, err := keep(b, mr, err); err != nil {
		return "", err
	}
	return "", x.readsInto(mr, mr.Bytes(), y)
}

func tryAddressSpace(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	all, err := experimental.RegisterAddressSpace(x.pd, verbs.MRConfig{})
	if _, err := keep(b, all, err); err != nil {
		return "", err
	}
	data := x.mr.Bytes()[:64] // outside the Go heap
	fill(y.mr.Bytes()[:64])
	if err := x.do(1, func(b *verbs.Batch) { b.Read(1, verbs.Signaled, y.region().At(0), experimental.SGEOf(all, data)) }); err != nil {
		return "", err
	}
	return "", sameBytes("what was read", data, y.mr.Bytes()[:64])
}

func tryPrefetch(b *bench) (string, error) {
	e, err := b.base(b.here, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	mr := e.mr
	if b.features.OnDemand {
		lazy, err := e.pd.AllocMR(4096, verbs.MRConfig{Access: experimental.OnDemand})
		if mr, err = keep(b, lazy, err); err != nil {
			return "", err
		}
	}
	return "", experimental.Prefetch(mr, 0, 4096, experimental.AdvisePrefetch, true)
}

// tryReregister takes rights back, and moves a region to another domain.
func tryReregister(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	// Its home is made first, so that it closes after the region.
	second, err := y.dev.AllocPD()
	if _, err := keep(b, second, err); err != nil {
		return "", err
	}
	mr, err := y.pd.AllocMR(4096, verbs.MRConfig{Access: b.access()})
	if _, err := keep(b, mr, err); err != nil {
		return "", err
	}
	if err := mr.SetAccess(verbs.RemoteRead); err != nil {
		return "", err
	}
	fill(mr.Bytes()[:64])
	if err := x.reads(mr.Region(), mr.Bytes()); err != nil {
		return "", err
	}
	if err := mr.MoveTo(second); err != nil {
		return "", err
	}
	at := mr.Region().At(0)
	return "", x.fails("a WRITE without the right to it", func(b *verbs.Batch) { b.Write(1, verbs.Signaled, at, x.mr.SGE(0, 8)) })
}

// windowed makes two ends, and a region of y that windows can be bound to.
func windowed(b *bench, t verbs.WindowType) (x, y *end, mr *verbs.MR, w *verbs.Window, err error) {
	if x, y, err = b.pair(verbs.QPConfig{}, verbs.CQConfig{}); err != nil {
		return
	}
	mr, err = y.pd.AllocMR(8192, verbs.MRConfig{Access: verbs.BindWindow})
	if _, err = keep(b, mr, err); err != nil {
		return
	}
	fill(mr.Bytes())
	w, err = y.pd.AllocWindow(t)
	_, err = keep(b, w, err)
	return
}

func tryWindow1(b *bench) (string, error) {
	x, y, mr, w, err := windowed(b, verbs.Window1)
	if err != nil {
		return "", err
	}
	if err := w.Bind(y.qp, 1, verbs.Signaled, mr, 4096, 1024, verbs.RemoteRead); err != nil {
		return "", err
	}
	if _, err := y.done(1); err != nil {
		return "", err
	}
	return "", x.reads(w.Region(), mr.Bytes()[4096:])
}

func tryWindow2(b *bench) (string, error) {
	x, y, mr, w, err := windowed(b, verbs.Window2)
	if err != nil {
		return "", err
	}
	if err := y.do(1, func(b *verbs.Batch) {
		b.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRBindWindow, Bind: &verbs.WindowBinding{Window: w, MR: mr, Offset: 4096, Length: 1024, Access: verbs.RemoteRead}})
	}); err != nil {
		return "", err
	}
	if err := x.reads(w.Region(), mr.Bytes()[4096:]); err != nil {
		return "", err
	}
	if err := y.do(1, func(b *verbs.Batch) {
		b.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRLocalInvalidate, Remote: verbs.Remote{RKey: w.Region().RKey}})
	}); err != nil {
		return "", err
	}
	at := w.Region().At(0)
	return "", x.fails("a READ by an invalidated key", func(b *verbs.Batch) { b.Read(3, verbs.Signaled, at, x.mr.SGE(0, 8)) })
}

func trySendInvalidate(b *bench) (string, error) {
	x, y, mr, w, err := windowed(b, verbs.Window2)
	if err != nil {
		return "", err
	}
	if err := y.recv(1, 64); err != nil {
		return "", err
	}
	if err := y.do(1, func(b *verbs.Batch) {
		b.Add(verbs.WR{ID: 1, Flags: verbs.Signaled, Op: verbs.WRBindWindow, Bind: &verbs.WindowBinding{Window: w, MR: mr, Offset: 0, Length: 4096, Access: verbs.RemoteRead}})
	}); err != nil {
		return "", err
	}
	key := w.Region().RKey
	if err := x.do(1, func(b *verbs.Batch) {
		b.Add(verbs.WR{ID: 2, Flags: verbs.Signaled, Op: verbs.WRSendInvalidate, Remote: verbs.Remote{RKey: key}, Local: []verbs.SGE{x.mr.SGE(0, 8)}})
	}); err != nil {
		return "", err
	}
	wcs, err := y.done(1)
	if err != nil {
		return "", err
	}
	note := "the completion does not tell the key"
	if told, ok := wcs[0].Invalidated(); ok {
		note = ""
		if err := same("the key that the completion tells", told, key); err != nil {
			return "", err
		}
	}
	at := w.Region().At(0)
	return note, x.fails("a READ by an invalidated key", func(b *verbs.Batch) { b.Read(3, verbs.Signaled, at, x.mr.SGE(0, 8)) })
}
