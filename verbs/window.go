package verbs

import (
	"sync"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/internal/life"
)

// WindowType is how a memory window is bound (enum ibv_mw_type).
type WindowType uint32

const (
	// Window1 (IBV_MW_TYPE_1) is bound by [Window.Bind], under a key that the device chooses,
	// and may be used through any queue pair of its protection domain.
	Window1 WindowType = 1
	// Window2 (IBV_MW_TYPE_2) is bound by a request, [WRBindWindow], under a key
	// with a last byte that the program chooses, and belongs to that queue pair
	// (type 2B).
	Window2 WindowType = 2
)

// Window is a memory window: a key for part of a memory region that can be
// given out and taken back without registering anything (InfiniBand
// specification, volume 1, section 10.6.7).
type Window struct {
	life life.Life
	pd   *PD
	mw   cgo.MW
	typ  WindowType

	mu     sync.Mutex
	rkey   uint32 // of the last binding, or the one that the next is counted from
	region Region
	mr     *MR // bound to
}

// AllocWindow makes a memory window that gives no access yet.
func (p *PD) AllocWindow(t WindowType) (*Window, error) {
	w := &Window{pd: p, typ: t}
	if t != Window1 && t != Window2 {
		return nil, opError("allocate window in", p.life.Label, ErrAttributes, "type ", uint32(t))
	}
	if err := w.life.Attach("mw", life.Label("mw"), &p.life); err != nil {
		return nil, err
	}
	var err error
	if w.mw, w.rkey, err = cgo.AllocMW(p.pd, uint32(t)); err != nil {
		p.life.RemoveChild("mw")
		return nil, opError("allocate window in", p.life.Label, unsupported(err))
	}
	return w, nil
}

// Close ends the window's access and frees it.
func (w *Window) Close() error {
	return w.life.Close("mw", nil, func() error {
		if err := w.pd.dev.destroyed(cgo.DeallocMW(w.mw)); err != nil {
			return err
		}
		w.rebind(nil)
		return nil
	})
}

// Region is the memory that the window gives access to, to be sent to a peer
// once the binding has completed.
func (w *Window) Region() Region {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.region
}

// rebind keeps the region open that the window stands on.
func (w *Window) rebind(mr *MR) {
	if w.mr != nil {
		w.mr.life.RemoveChild("mw")
	}
	w.mr = mr
}

// bindable checks what the device would refuse without saying why.
func (w *Window) bindable(q *QP, t WindowType, mr *MR, off, n int, access Access) error {
	const op = "bind"
	switch {
	case w.typ != t:
		return opError(op, w.life.Label, ErrAttributes, "a window of type ", uint32(w.typ), "; type 1 is bound by Bind, type 2 by a batch")
	case w.pd != q.pd || mr.pd != q.pd:
		return opError(op, w.life.Label, ErrAttributes, "window, region and queue pair of different protection domains")
	case mr.access&BindWindow == 0:
		return opError(op, w.life.Label, ErrAttributes, mr.life.Label, " was registered without BindWindow")
	case access&(RemoteWrite|RemoteAtomic) != 0 && mr.access&LocalWrite == 0:
		return opError(op, w.life.Label, ErrAttributes, "remote writes to a region without LocalWrite")
	case off < 0 || n < 0 || off > mr.Len() || n > mr.Len()-off:
		return opError(op, w.life.Label, ErrRange, "offset ", off, ", length ", n)
	}
	return nil
}

// Bind posts the binding of a type 1 window to n bytes at offset off of mr.
// Its completion is a [WCBindMW] on the queue pair; n of 0 ends a binding.
// The region stays open until the window is bound elsewhere or closed. Queue
// pairs made with [QPConfig.Extended] have no such windows.
func (w *Window) Bind(q *QP, id uint64, flags SendFlags, mr *MR, off, n int, access Access) error {
	if err := w.life.Open("bind"); err != nil {
		return err
	}
	if err := w.bindable(q, Window1, mr, off, n, access); err != nil {
		return err
	}
	if q.requester.Load() != nil {
		return q.requested("bind to")
	}
	if q.path != cgo.PostPlain {
		// ibv_bind_mw posts past the count of what is in the queue.
		return opError("bind", w.life.Label, ErrUnsupported, "a window of type 1 on a queue pair made with Extended")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.life.With("bind", func() error {
		return q.life.With("post send to", func() error {
			if err := mr.life.AddChild("mw"); err != nil {
				return err
			}
			rkey, err := cgo.BindMW(q.qp, w.mw, id, uint32(flags), mr.mr, mr.addr+uint64(off), uint64(n), uint32(access))
			if err != nil {
				mr.life.RemoveChild("mw")
				return opError("bind", w.life.Label, unsupported(err))
			}
			w.rebind(mr)
			w.rkey, w.region = rkey, Region{Addr: mr.addr + uint64(off), Length: uint64(n), RKey: rkey}
			return nil
		})
	})
}

// WindowBinding is the binding of a type 2 window to Length bytes at offset Offset of a region,
// under a new key. [Window.Region] returns the key once the request is added; it is valid for
// requests of peers that arrive after the binding has completed. A bound window must be
// invalidated before it is bound again. Post refuses the batch if the window was closed since,
// or the region before it was bound.
type WindowBinding struct {
	Window *Window
	MR     *MR
	Offset int
	Length int
	Access Access
}

// wrong returns why the queue pair would refuse a binding, or nil.
func (w *WindowBinding) wrong(q *QP) error {
	if w == nil || w.Window == nil || w.MR == nil {
		return opError("bind", q.life.Label, ErrAttributes, "no window or no region")
	}
	return w.Window.bindable(q, Window2, w.MR, w.Offset, w.Length, w.Access)
}

func (b *Batch) bind(r *WR) {
	if err := r.Bind.wrong(b.qp); err != nil {
		b.keep(err)
		return
	}
	w, mr := r.Bind.Window, r.Bind.MR
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.life.Open("bind")
	if err == nil {
		err = mr.life.AddChild("mw")
	}
	if err != nil {
		b.keep(err)
		return
	}
	wr := b.next(r.ID, opBindMW, r.Flags, Remote{}, nil)
	if wr == nil {
		mr.life.RemoveChild("mw")
		return
	}
	w.rebind(mr)
	w.rkey = w.rkey&^0xff | (w.rkey+1)&0xff
	w.region = Region{Addr: mr.addr + uint64(r.Bind.Offset), Length: uint64(r.Bind.Length), RKey: w.rkey}
	wr.SetBind(w.mw, w.rkey, mr.mr, w.region.Addr, w.region.Length, uint32(r.Bind.Access))
	b.name(&w.life)
	b.name(&mr.life)
}
