package dc

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// Op is what a request does.
type Op uint8

const (
	Send     Op = iota // Local, into a receive of the target
	SendImm            // the same with Imm
	Write              // Local to Remote
	WriteImm           // the same, and Imm into a receive
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

// Request is work for a target. The memory that Local names belongs to the
// device from Post until the completion.
type Request struct {
	ID uint64 // the caller's own; comes back in the completion
	Op Op
	// Flags may have Solicited; Fence, which holds the request back until all
	// earlier READs and atomics of its target have completed; and Inline for a
	// SEND or WRITE, which sends up to [InitiatorConfig.MaxInline] bytes
	// inside the request: Local needs no registration, but belongs to the
	// device until the completion all the same. Every request is signaled.
	Flags  verbs.SendFlags
	Imm    uint32
	Local  verbs.SGE
	Remote verbs.Remote
	Value  uint64 // FetchAdd: added; CmpSwap: stored
	// Compare is for CmpSwap.
	Compare uint64
	// For masked atomics.
	CompareMask, Mask uint64
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

// ops are what the queue pairs are made for beyond the usual.
func (c *InitiatorConfig) ops() verbs.SendOps {
	if c.Masked {
		return verbs.OpMasked
	}
	return 0
}

// check looks at requests that are not of the plain sort.
func (r *Request) check(c *InitiatorConfig) error {
	switch {
	case r.Op > MaskedFetchAdd:
		return fmt.Errorf("%w: %v", verbs.ErrAttributes, r.Op)
	case r.Op > CmpSwap && !c.Masked:
		return fmt.Errorf("%w: %v; the initiator was made without Masked", verbs.ErrUnsupported, r.Op)
	case r.Flags&verbs.Inline == 0:
		return nil
	case r.Op > WriteImm:
		return fmt.Errorf("%w: %v cannot be inline", verbs.ErrAttributes, r.Op)
	case int64(r.Local.Length) > int64(c.MaxInline):
		return fmt.Errorf("%w: %d bytes inline; MaxInline is %d", verbs.ErrAttributes, r.Local.Length, c.MaxInline)
	}
	return nil
}

// add puts the request into a batch under an id of the initiator's.
func (r *Request) add(b *verbs.Batch, id uint64) {
	flags := r.Flags&(verbs.Solicited|verbs.Fence|verbs.Inline) | verbs.Signaled
	switch r.Op {
	case Send:
		b.Send(id, flags, r.Local)
	case SendImm:
		b.SendImm(id, flags, r.Imm, r.Local)
	case Write:
		b.Write(id, flags, r.Remote, r.Local)
	case WriteImm:
		b.WriteImm(id, flags, r.Imm, r.Remote, r.Local)
	case Read:
		b.Read(id, flags, r.Remote, r.Local)
	case FetchAdd:
		b.FetchAdd(id, flags, r.Remote, r.Value, r.Local)
	case CmpSwap:
		b.CmpSwap(id, flags, r.Remote, r.Compare, r.Value, r.Local)
	case MaskedCmpSwap:
		b.MaskedCmpSwap(id, flags, r.Remote, verbs.MaskedCmpSwap{Compare: r.Compare, CompareMask: r.CompareMask, Swap: r.Value, SwapMask: r.Mask}, r.Local)
	case MaskedFetchAdd:
		b.MaskedFetchAdd(id, flags, r.Remote, verbs.MaskedFetchAdd{Add: r.Value, Boundary: r.Mask}, r.Local)
	}
}

// packets is how many packet numbers the request takes: one for each packet of
// a message or, with READ, of its response.
func (r *Request) packets(mtu int) int {
	if r.Op >= FetchAdd {
		return 1
	}
	return max(1, (int(r.Local.Length)+mtu-1)/mtu)
}
