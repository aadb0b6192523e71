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
)

func (o Op) String() string {
	names := [...]string{"SEND", "SEND with immediate", "WRITE", "WRITE with immediate", "READ", "FETCH_ADD", "CMP_SWAP"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("operation %d", o)
}

// Request is work for a target. The memory that Local names belongs to the
// device from Post until the completion.
type Request struct {
	ID     uint64 // the caller's own; comes back in the completion
	Op     Op
	Flags  verbs.SendFlags // Solicited is the only one that counts; every request is signaled
	Imm    uint32
	Local  verbs.SGE
	Remote verbs.Remote
	Value  uint64 // FetchAdd: added; CmpSwap: stored
	// Compare is for CmpSwap.
	Compare uint64
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

// add puts the request into a batch under an id of the initiator's.
func (r *Request) add(b *verbs.Batch, id uint64) {
	flags := r.Flags&verbs.Solicited | verbs.Signaled
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
