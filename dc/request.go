package dc

import (
	"fmt"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// Op is what a request does.
type Op uint8

const (
	Send     Op = iota // Local, into a receive of the target
	SendImm            // the same with Imm
	Write              // Local to Remote
	WriteImm           // the same, and Imm into a receive; see [ErrNoReceive]
	Read               // Remote to Local
	FetchAdd           // Remote += Value, the old value to Local
	CmpSwap            // if Remote == Compare then Remote = Value, the old value to Local

	// Masked atomics, on 8-byte aligned words, as [verbs.MaskedCmpSwap] and
	// [verbs.MaskedFetchAdd] describe them. The old value goes to Local, 8
	// bytes in host byte order. The initiator must be made with
	// [InitiatorConfig.Masked].
	MaskedCmpSwap  // compares the bits of CompareMask, stores those of Mask
	MaskedFetchAdd // Mask has the highest bit of each field
)

func (o Op) String() string {
	names := [...]string{"SEND", "SEND with immediate", "WRITE", "WRITE with immediate", "READ", "FETCH_ADD", "CMP_SWAP", "masked CMP_SWAP", "masked FETCH_ADD"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("operation %d", o)
}

// Request is work for a target. The memory that Local and List name belongs to
// the device from Post until the completion.
type Request struct {
	ID uint64 // the caller's own; comes back in the completion
	Op Op
	// Quiet: there is no completion unless the request fails. Its memory is the
	// caller's again when a later request of the same target has completed, or
	// [Initiator.Flush] has returned.
	Quiet bool
	// Flags may have Solicited; Fence, which holds the request back until all
	// earlier READs and atomics of its target have completed; and Inline for a
	// SEND or WRITE, which sends up to [InitiatorConfig.MaxInline] bytes
	// inside the request: Local needs no registration, but belongs to the
	// device until the completion all the same.
	Flags  verbs.SendFlags
	Imm    uint32
	Local  verbs.SGE
	Remote verbs.Remote
	Value  uint64 // FetchAdd: added; CmpSwap: stored
	// Compare is for CmpSwap.
	Compare uint64
	// For masked atomics.
	CompareMask, Mask uint64
	// List is local memory in several pieces, at most [InitiatorConfig.MaxSGE],
	// instead of Local. The slice belongs to the initiator until the completion.
	List []verbs.SGE
	// Timeout bounds how long the request may wait for its target, from when it first
	// has to; then it fails with [ErrTimeout]. 0 means any time.
	Timeout time.Duration
}

// Completion is a request that has ended.
type Completion struct {
	ID   uint64
	Peer *Peer
	Op   Op
	// Err is nil if the request was carried out, exactly once. [ErrSession]
	// means that this is not known; other errors that it was not.
	Err error
}

// ops returns what the queue pairs are made for beyond the usual.
func (c *InitiatorConfig) ops() verbs.SendOps {
	if c.Masked {
		return verbs.OpMasked
	}
	return 0
}

// longest is what one piece of memory may have: beyond it are those that verbs
// makes for memory that is not there.
const longest = 1 << 31

// nowhere is what verbs returns for remote memory outside of its region.
var nowhere = verbs.Remote{Addr: 1<<64 - 1, RKey: 1<<32 - 1}

// check refuses what a queue pair would refuse, so that one request does not
// fail others which were posted with it.
func (r *Request) check(c *InitiatorConfig) error {
	if r.Op <= Read && r.Flags&verbs.Inline == 0 && r.List == nil && r.Local.Length <= longest && r.Remote != nowhere {
		return nil
	}
	n, pieces := int64(0), r.pieces()
	for _, s := range pieces {
		if s.Length > longest {
			return fmt.Errorf("%w: local memory", verbs.ErrRange)
		}
		n += int64(s.Length)
	}
	switch inline := r.Flags&verbs.Inline != 0; {
	case r.Op > MaskedFetchAdd:
		return fmt.Errorf("%w: %v", verbs.ErrAttributes, r.Op)
	case r.Op > CmpSwap && !c.Masked:
		return fmt.Errorf("%w: %v; the initiator was made without Masked", verbs.ErrUnsupported, r.Op)
	case len(pieces) > c.MaxSGE:
		return fmt.Errorf("%w: %d pieces of memory; MaxSGE is %d", verbs.ErrAttributes, len(pieces), c.MaxSGE)
	case n > longest:
		return fmt.Errorf("%w: %d bytes", verbs.ErrRange, n)
	case r.Op > SendImm && r.Remote == nowhere:
		return fmt.Errorf("%w: remote memory", verbs.ErrRange)
	case r.Op >= FetchAdd && r.Remote.Addr%8 != 0:
		return fmt.Errorf("%w: an atomic needs an 8-byte aligned word", verbs.ErrRange)
	case r.Op >= FetchAdd && (r.List != nil || n != 8):
		return fmt.Errorf("%w: the result of an atomic has 8 bytes in one piece", verbs.ErrRange)
	case inline && r.Op > WriteImm:
		return fmt.Errorf("%w: %v cannot be inline", verbs.ErrAttributes, r.Op)
	case inline && n > int64(c.MaxInline):
		return fmt.Errorf("%w: %d bytes inline; MaxInline is %d", verbs.ErrAttributes, n, c.MaxInline)
	}
	return nil
}

func (r *Request) pieces() []verbs.SGE {
	if r.List != nil {
		return r.List
	}
	return (&[1]verbs.SGE{r.Local})[:]
}

// add puts the request into a batch under an id of the initiator's.
func (r *Request) add(b *verbs.Batch, id uint64, signaled verbs.SendFlags) {
	flags := r.Flags&(verbs.Solicited|verbs.Fence|verbs.Inline) | signaled
	one := [1]verbs.SGE{r.Local}
	local := one[:]
	if r.List != nil {
		local = r.List
	}
	switch r.Op {
	case Send:
		b.Send(id, flags, local...)
	case SendImm:
		b.SendImm(id, flags, r.Imm, local...)
	case Write:
		b.Write(id, flags, r.Remote, local...)
	case WriteImm:
		b.WriteImm(id, flags, r.Imm, r.Remote, local...)
	case Read:
		b.Read(id, flags, r.Remote, local...)
	case FetchAdd:
		b.FetchAdd(id, flags, r.Remote, r.Value, r.Local)
	case CmpSwap:
		b.CmpSwap(id, flags, r.Remote, r.Compare, r.Value, r.Local)
	case MaskedCmpSwap:
		b.Add(verbs.WR{ID: id, Op: verbs.WRMaskedCmpSwap, Flags: flags, Remote: r.Remote, Local: local, Compare: r.Compare, CompareMask: r.CompareMask, Value: r.Value, Mask: r.Mask})
	case MaskedFetchAdd:
		b.Add(verbs.WR{ID: id, Op: verbs.WRMaskedFetchAdd, Flags: flags, Remote: r.Remote, Local: local, Value: r.Value, Mask: r.Mask})
	}
}

// takesReceiveFirst reports whether nothing of the request has been carried out when the
// target has no receive for it. A SEND takes the receive with its first packet, a WRITE with
// immediate with its last one, when the others have been written.
func (r *Request) takesReceiveFirst(mtu int) bool {
	return r.Op == Send || r.Op == SendImm || r.Op == WriteImm && r.packets(mtu) == 1
}

// packets returns how many packet numbers the request takes: one for each packet of
// a message or, with READ, of its response.
func (r *Request) packets(mtu int) int {
	if r.Op >= FetchAdd {
		return 1
	}
	n := int(r.Local.Length)
	if r.List != nil {
		n = 0
		for _, s := range r.List {
			n += int(s.Length)
		}
	}
	if n <= mtu {
		return 1
	}
	return (n + mtu - 1) / mtu
}
