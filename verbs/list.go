package verbs

// List is what a call of a [Requester] posts: requests that the device executes
// in order. Only the last of them completes visibly.
type List struct {
	// Flags of the requests that are added next, such as [Fence]. [Signaled] is
	// the requester's matter.
	Flags SendFlags

	b *Batch
}

// Len is how many requests were added. A list holds as many as the send queue
// ([QP.MaxSendWR]).
func (l *List) Len() int { return l.b.Len() }

// Read adds a READ, as [Batch.Read] does.
func (l *List) Read(from Remote, into ...SGE) { l.b.Read(0, l.Flags, from, into...) }

// Write adds a WRITE, as [Batch.Write] does.
func (l *List) Write(to Remote, from ...SGE) { l.b.Write(0, l.Flags, to, from...) }

// WriteInline adds a WRITE of bytes that are copied now, as [Batch.WriteInline]
// does.
func (l *List) WriteInline(to Remote, data []byte) { l.b.WriteInline(0, l.Flags, to, data) }

// WriteImm adds a WRITE that consumes a receive, as [Batch.WriteImm] does.
func (l *List) WriteImm(imm uint32, to Remote, from ...SGE) {
	l.b.WriteImm(0, l.Flags, imm, to, from...)
}

// Send adds a SEND, as [Batch.Send] does.
func (l *List) Send(data ...SGE) { l.b.Send(0, l.Flags, data...) }

// SendInline adds a SEND of bytes that are copied now, as [Batch.SendInline]
// does.
func (l *List) SendInline(data []byte) { l.b.SendInline(0, l.Flags, data) }

// SendImm adds a SEND with an immediate, as [Batch.SendImm] does.
func (l *List) SendImm(imm uint32, data ...SGE) { l.b.SendImm(0, l.Flags, imm, data...) }

// SendTo adds a datagram, as [Batch.SendTo] does.
func (l *List) SendTo(to Destination, data ...SGE) { l.b.SendTo(0, l.Flags, to, data...) }

// SendToImm adds a datagram with an immediate, as [Batch.SendToImm] does.
func (l *List) SendToImm(imm uint32, to Destination, data ...SGE) {
	l.b.SendToImm(0, l.Flags, imm, to, data...)
}

// FetchAdd adds a FETCH_ADD, as [Batch.FetchAdd] does.
func (l *List) FetchAdd(at Remote, add uint64, result SGE) {
	l.b.FetchAdd(0, l.Flags, at, add, result)
}

// CmpSwap adds a CMP_SWAP, as [Batch.CmpSwap] does.
func (l *List) CmpSwap(at Remote, compare, swap uint64, result SGE) {
	l.b.CmpSwap(0, l.Flags, at, compare, swap, result)
}

// BindWindow adds the binding of a memory window of type 2, as [Batch.BindWindow]
// does.
func (l *List) BindWindow(w *Window, mr *MR, off, n int, access Access) {
	l.b.BindWindow(0, l.Flags, w, mr, off, n, access)
}

// LocalInvalidate adds the end of a key of this side, as [Batch.LocalInvalidate]
// does.
func (l *List) LocalInvalidate(rkey uint32) { l.b.LocalInvalidate(0, l.Flags, rkey) }

// SendInvalidate adds a SEND that ends a key of the peer, as [Batch.SendInvalidate]
// does.
func (l *List) SendInvalidate(rkey uint32, data ...SGE) {
	l.b.SendInvalidate(0, l.Flags, rkey, data...)
}
