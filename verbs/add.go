package verbs

// Add adds any request. What is wrong with it, Post reports.
func (b *Batch) Add(w WR) { b.add(&w) }

func (b *Batch) add(w *WR) {
	local, flags := w.Local, w.Flags
	if len(w.Data) > 0 {
		if err := b.wrongData(w); err != nil {
			b.keep(err)
			return
		}
		s, ok := b.inline(w.Data)
		if !ok {
			return
		}
		local, flags = []SGE{s}, flags|Inline
	}
	switch w.Op {
	case WRRead, WRWrite, WRWriteImm:
		if r := b.next(w.ID, w.Op.code(), flags, w.Remote, local); r != nil && w.Op == WRWriteImm {
			r.ImmData = bigEndian32(w.Imm)
		}
	case WRSend, WRSendImm, WRSendInvalidate:
		r := b.next(w.ID, w.Op.code(), flags, Remote{}, local)
		switch {
		case r == nil:
			return
		case w.Op == WRSendImm:
			r.ImmData = bigEndian32(w.Imm)
		case w.Op == WRSendInvalidate:
			r.SetInvalidate(w.Remote.RKey)
		}
		if w.To != nil || b.qp.typ == UD {
			b.datagram(r, w.to())
		}
	case WRFetchAdd:
		b.atomic(w.ID, opFetchAdd, flags, w.Remote, w.Value, 0, w.result())
	case WRCmpSwap:
		b.atomic(w.ID, opCmpSwap, flags, w.Remote, w.Compare, w.Value, w.result())
	case WRMaskedCmpSwap, WRMaskedFetchAdd:
		b.masked(w.ID, flags, w.masked(), w.Remote, w.result())
	case WRAtomicWrite:
		b.atomicWrite(w)
	case WRLocalInvalidate:
		if r := b.next(w.ID, opLocalInv, flags, Remote{}, nil); r != nil {
			r.SetInvalidate(w.Remote.RKey)
		}
	case WRBindWindow:
		b.bind(w)
	default:
		b.fail(ErrAttributes, "no operation")
	}
}

func (w *WR) masked() maskedOp {
	o := maskedOp{add: w.Op == WRMaskedFetchAdd, bits32: w.result().Length == 4, operand: w.Value}
	if o.add {
		o.boundary = w.Mask
	} else {
		o.compare, o.compareMask, o.swapMask = w.Compare, w.CompareMask, w.Mask
	}
	return o
}

// Check returns the error that adding a request would make Post return, or nil. It is for code
// that keeps requests and posts them later. It may be called beside other methods.
func (b *Batch) Check(w WR) error {
	if b.qp.life.Closed() {
		return b.qp.life.Open("post send to")
	}
	to, local, flags := w.Remote, w.Local, w.Flags
	if len(w.Data) > 0 {
		if err := b.wrongData(&w); err != nil {
			return err
		}
		local, flags = []SGE{{Length: uint32(min(len(w.Data), maxSGELength))}}, flags|Inline
	}
	switch w.Op {
	case WRRead, WRWrite, WRWriteImm:
	case WRSend, WRSendImm, WRSendInvalidate:
		to = Remote{}
		if (w.To != nil || b.qp.typ == UD) && w.to().AH == nil {
			return b.addError(ErrAttributes, "a datagram needs an address handle")
		}
	case WRFetchAdd, WRCmpSwap:
		if err := b.wrongAtomic(to, w.result(), 8); err != nil {
			return err
		}
	case WRMaskedCmpSwap, WRMaskedFetchAdd:
		return b.wrongMasked(w.masked(), to, w.result())
	case WRAtomicWrite:
		return b.wrongAtomicWrite(to)
	case WRLocalInvalidate:
		return nil
	case WRBindWindow:
		return w.Bind.wrong(b.qp)
	default:
		return b.addError(ErrAttributes, "no operation")
	}
	return b.wrong(w.Op.code(), flags, to, local)
}
