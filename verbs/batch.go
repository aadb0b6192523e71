package verbs

import (
	"runtime"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/internal/life"
)

// Batch collects send work requests and posts them in one crossing into C, in
// order, with one doorbell. Its memory is outside the Go heap and is reused by
// the next batch: adding, posting and polling allocate nothing.
//
// [Batch.Add] adds any request; the other methods are short for the usual ones. They only fill
// in memory. Post reports what is wrong with one of them, and then posts none of the batch. A
// batch is for one goroutine at a time. Several batches may post to one queue pair concurrently;
// the requests of each stay together.
//
// The work requests themselves are copied by Post. The memory that they name
// belongs to the device until they complete: see [MR].
type Batch struct {
	qp    *QP
	chain *cgo.SendChain
	n     int
	err   error

	// Of chain, here because they are used for each request.
	wrs    []cgo.SendWR
	sges   []SGE
	maxSGE int
	maxMsg uint32 // bytes of a message

	named []*life.Life // address handles and windows, to be held open while posting
	dests []targeted   // of a queue pair without a connection
	by    *Dispatcher  // owner of the tags in its numbers, or nil
	owned bool         // by a requester or other code that keeps the queue pair open
	kept  bool         // that code keeps address handles and windows open too
}

// NewBatch makes a batch of up to n work requests; n above the queue's
// capacity ([QP.MaxSendWR]) is refused.
func (q *QP) NewBatch(n int) (*Batch, error) {
	if err := q.life.Open("make batch for"); err != nil {
		return nil, err
	}
	if n <= 0 || n > int(q.cap.MaxSendWR) {
		return nil, opError("make batch for", q.life.Label, ErrAttributes, n, " work requests; the queue holds ", q.cap.MaxSendWR)
	}
	inline := int(q.cap.MaxInlineData)
	if q.ops&OpMasked != 0 {
		inline = max(inline, wqeMax) // raw entries lie there until they are posted
	}
	if q.typ == RawPacket {
		inline = max(inline, shortestFrame) // for Drain
	}
	chain, err := cgo.NewSendChain(n, max(int(q.cap.MaxSendSGE), 1), inline)
	if err != nil {
		return nil, opError("make batch for", q.life.Label, err)
	}
	b := &Batch{qp: q, chain: chain, wrs: chain.WRs, sges: chain.SGEs, maxSGE: chain.MaxSGE, maxMsg: q.maxMessage()}
	// Only memory: nothing depends on when it is freed.
	runtime.AddCleanup(b, (*cgo.SendChain).Free, chain)
	return b, nil
}

// Len is the number of work requests added since the last Post or Reset.
func (b *Batch) Len() int { return b.n }

// Cap is the number of work requests that the batch holds.
func (b *Batch) Cap() int { return len(b.wrs) }

// Reset drops what was added.
func (b *Batch) Reset() {
	b.ended(nil)
}

// keep keeps the first error for Post.
func (b *Batch) keep(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *Batch) fail(err error, detail ...any) { b.keep(b.addError(err, detail...)) }

func (b *Batch) addError(err error, detail ...any) error {
	return opError("add to batch of", b.qp.life.Label, err, detail...)
}

// next fills in a request to remote memory, which callers overwrite for other
// kinds, or returns nil. It is the only call that adding a request makes: the
// methods below are small enough to be inlined around it.
func (b *Batch) next(id uint64, op uint32, flags SendFlags, to Remote, sges []SGE) *cgo.SendWR {
	if flags&Inline != 0 {
		return b.nextInline(id, op, flags, to, sges)
	}
	i := b.n
	if uint(i) >= uint(len(b.wrs)) || len(sges) > b.maxSGE || to == badRemote {
		return b.refuse(op, to, sges)
	}
	w := &b.wrs[i]
	w.ID = id
	w.NumSGE = int32(len(sges))
	w.Opcode = op
	w.Flags = uint32(flags)
	w.SetRDMA(to.Addr, to.RKey)
	if len(sges) == 1 { // nearly always, and without a loop
		if sges[0].Length > b.maxMsg {
			return b.refuse(op, to, sges)
		}
		b.sges[i*b.maxSGE] = sges[0]
	} else {
		dst, size := b.sges[i*b.maxSGE:], uint64(0)
		for j := range sges {
			if size += uint64(sges[j].Length); size > uint64(b.maxMsg) {
				return b.refuse(op, to, sges)
			}
			dst[j] = sges[j]
		}
	}
	b.n = i + 1
	return w
}

// refuse keeps the error of a request that next does not take. It is apart from next, which it
// would slow down by the size of its stack frame.
//
//go:noinline
func (b *Batch) refuse(op uint32, to Remote, sges []SGE) *cgo.SendWR {
	if b.n >= len(b.wrs) {
		b.fail(ErrBatchFull, "it holds ", len(b.wrs))
	} else {
		b.keep(b.wrong(op, 0, to, sges))
	}
	return nil
}

// carriesData reports whether a request sends local memory.
func carriesData(op uint32) bool { return op <= opSendImm || op == opSendInv }

// maxInlinePieces is GV_MAX_INLINE_PIECES of package cgo.
const maxInlinePieces = 32

// wrong returns why the queue pair would refuse a request, or nil.
func (b *Batch) wrong(op uint32, flags SendFlags, to Remote, sges []SGE) error {
	size, outside := uint64(0), false
	for _, s := range sges {
		size += uint64(s.Length)
		outside = outside || s.Length > maxSGELength
	}
	switch inline := flags&Inline != 0; {
	case inline && !carriesData(op):
		return b.addError(ErrAttributes, opcodeNames[op], " has no data to be inline")
	case inline && len(sges) > maxInlinePieces:
		return b.addError(ErrAttributes, len(sges), " pieces inline; at most ", maxInlinePieces)
	case inline && !outside && size > uint64(b.qp.cap.MaxInlineData):
		return b.addError(ErrAttributes, size, " bytes inline; MaxInline is ", b.qp.MaxInline())
	case len(sges) > b.maxSGE:
		return b.addError(ErrAttributes, len(sges), " scatter/gather entries; MaxSendSGE is ", b.maxSGE)
	case to == badRemote:
		return b.addError(ErrRange, "remote memory: an offset that Region.At refuses")
	case size <= uint64(b.maxMsg):
		return nil
	}
	for _, s := range sges {
		if s.Length > maxSGELength {
			return b.addError(refusal(s), localMemory(s))
		}
	}
	return b.addError(ErrTooLarge, size, " bytes; the port takes ", b.maxMsg)
}

func (b *Batch) wrongData(w *WR) error {
	switch {
	case len(w.Local) > 0:
		return b.addError(ErrAttributes, "Local and Data")
	case !carriesData(w.Op.code()):
		return b.addError(ErrAttributes, w.Op, " has no data to be inline")
	}
	return nil
}

// wrongAtomic is wrong for an atomic with a result of size bytes.
func (b *Batch) wrongAtomic(at Remote, result SGE, size int) error {
	switch {
	case at.Addr%uint64(size) != 0 && at != badRemote:
		return b.addError(ErrRange, "an atomic needs an aligned word of ", size, " bytes")
	case result == closedSGE:
		return b.addError(ErrClosed, "local memory")
	case int(result.Length) != size:
		return b.addError(ErrRange, "the result of an atomic has ", size, " bytes")
	}
	return nil
}

// shortestFrame is the least that Ethernet carries, in bytes.
const shortestFrame = 60

// nextInline is next for data that is copied. The length is checked before the
// provider is called: some return the same error for a request that is too long as
// for a full queue (mlx5, bnxt_re), others copy it whole. It is apart from next,
// which a call in its middle would slow down by a tenth.
//
//go:noinline
func (b *Batch) nextInline(id uint64, op uint32, flags SendFlags, to Remote, sges []SGE) *cgo.SendWR {
	if err := b.wrong(op, flags, to, sges); err != nil {
		b.keep(err)
		return nil
	}
	w := b.next(id, op, flags&^Inline, to, sges)
	if w != nil {
		w.Flags = uint32(flags)
	}
	return w
}

// Send adds a SEND of the gathered memory.
func (b *Batch) Send(id uint64, flags SendFlags, sges ...SGE) {
	b.next(id, opSend, flags, Remote{}, sges)
}

// SendImm adds a SEND that carries an immediate, given in host byte order.
func (b *Batch) SendImm(id uint64, flags SendFlags, imm uint32, sges ...SGE) {
	if w := b.next(id, opSendImm, flags, Remote{}, sges); w != nil {
		w.ImmData = bigEndian32(imm)
	}
}

// Write adds a WRITE of the gathered local memory to a peer's.
func (b *Batch) Write(id uint64, flags SendFlags, to Remote, sges ...SGE) {
	b.next(id, opWrite, flags, to, sges)
}

// WriteImm adds a WRITE with an immediate, which consumes a receive at the peer.
func (b *Batch) WriteImm(id uint64, flags SendFlags, imm uint32, to Remote, sges ...SGE) {
	if w := b.next(id, opWriteImm, flags, to, sges); w != nil {
		w.ImmData = bigEndian32(imm)
	}
}

// Read adds a READ of a peer's memory, scattered over local memory.
func (b *Batch) Read(id uint64, flags SendFlags, from Remote, sges ...SGE) {
	b.next(id, opRead, flags, from, sges)
}

// FetchAdd adds a FETCH_ADD of a peer's 8-byte aligned word. The old value
// goes to result, 8 bytes of local memory, in host byte order.
//
// Where packets get lost, Soft-RoCE may complete an atomic without its result. To detect
// that, put a mark into result before, and look for it after, as [Requester] does.
func (b *Batch) FetchAdd(id uint64, flags SendFlags, at Remote, add uint64, result SGE) {
	b.atomic(id, opFetchAdd, flags, at, add, 0, result)
}

// CmpSwap adds a CMP_SWAP of a peer's 8-byte aligned word: if it equals
// compare it becomes swap. The old value goes to result in either case.
func (b *Batch) CmpSwap(id uint64, flags SendFlags, at Remote, compare, swap uint64, result SGE) {
	b.atomic(id, opCmpSwap, flags, at, compare, swap, result)
}

func (b *Batch) atomic(id uint64, op uint32, flags SendFlags, at Remote, compareAdd, swap uint64, result SGE) {
	if at.Addr%8 != 0 && at != badRemote || result.Length != 8 {
		b.keep(b.wrongAtomic(at, result, 8))
		return
	}
	if w := b.next(id, op, flags, at, []SGE{result}); w != nil {
		w.SetAtomic(at.Addr, compareAdd, swap, at.RKey)
	}
}

// SendTo adds a UD SEND.
func (b *Batch) SendTo(id uint64, flags SendFlags, to Destination, sges ...SGE) {
	b.datagram(b.next(id, opSend, flags, Remote{}, sges), to)
}

func (b *Batch) datagram(w *cgo.SendWR, to Destination) {
	switch {
	case w == nil:
		return
	case to.AH == nil:
		b.fail(ErrAttributes, "a datagram needs an address handle")
		return
	}
	w.SetUD(to.AH.ah, to.QPN, to.QKey)
	b.name(&to.AH.life)
}

// SendInline adds a SEND of bytes that are copied now and travel inside the
// work request: data needs no registration and may be reused at once. It has
// at most [QP.MaxInline] bytes.
func (b *Batch) SendInline(id uint64, flags SendFlags, data []byte) {
	if s, ok := b.inline(data); ok {
		b.next(id, opSend, flags|Inline, Remote{}, []SGE{s})
	}
}

// WriteInline adds a WRITE of bytes that are copied now, like SendInline.
func (b *Batch) WriteInline(id uint64, flags SendFlags, to Remote, data []byte) {
	if s, ok := b.inline(data); ok {
		b.next(id, opWrite, flags|Inline, to, []SGE{s})
	}
}

// inline copies data into the memory of the request that is added next.
func (b *Batch) inline(data []byte) (SGE, bool) {
	size := b.chain.MaxInline
	if limit := b.qp.MaxInline(); len(data) > limit {
		b.fail(ErrAttributes, len(data), " bytes inline; MaxInline is ", limit)
		return SGE{}, false
	}
	if b.n < len(b.wrs) {
		copy(b.chain.Inline[b.n*size:], data)
	}
	return SGE{Addr: b.chain.InlineAt + uint64(b.n*size), Length: uint32(len(data))}, true
}
