package lockoffload

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// Access is what a chain does to one record of its slot. After the chain,
// Version is that of the record: of what was read, of what was written, or
// the one that a compare found.
type Access struct {
	Kind    AccessKind
	Record  int
	Version uint64 // that a compare wants
	// Data is what to write, or where to read to: then it has room for
	// Layout.Size bytes, and is cut to what was read.
	Data []byte
}

// AccessKind is what an access does.
type AccessKind uint8

const (
	AccessRead    = AccessKind(wire.AccessRead)
	AccessWrite   = AccessKind(wire.AccessWrite)
	AccessCompare = AccessKind(wire.AccessCompare)
)

// Chain describes an operation on a slot: lock it, perform the accesses in
// their order, unlock it. Compares are examined before anything else: when one
// differs, nothing is written. See [Client.Do] and [Caller.Do].
type Chain struct {
	Slot int
	// Shared chains only read and compare. They go together with readers.
	Shared bool
	// Fair chains of a slot are carried out in turn, one of each client after the
	// other, by the target's agent; without one they are [ErrNoAgent].
	Fair bool
	// Accesses write a record once, at most.
	Accesses []Access
	// Change, if set, computes what is written: it sets the Data of accesses that write,
	// in the Accesses that it gets, and nil leaves a record as it is. Accesses that read
	// need no room, and have the record's data until Change returns. Its error ends the
	// chain, and nothing is changed. It runs under the lock, which is given back also if
	// it panics, and must not use the client for the same slot. It is not called when a
	// compare differs.
	Change func(accesses []Access) error
	// Async has [Client.Do] return when the WRITE and the unlock command are posted: nil
	// does not mean that they were executed. [Result.Commit] has the outcome.
	//
	// Chains with Change or Async write, and are carried out by the client itself.
	Async bool
	// Tries is how often the lock is examined, at most; 0 means what
	// [Config.Retry] says or, from a Caller, no limit.
	Tries int
	// Deadline is how long the lock may be waited for; 0 means as long as the
	// context lasts. An agent counts from the arrival of the chain, and
	// [AgentConfig.MaxWait] bounds it.
	Deadline time.Duration
}

// check returns an error for a chain that an agent would refuse, or that does not fit
// into a message of the given length.
func (ch *Chain) check(l Layout, message int) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...)
	}
	if ch.Slot < 0 || ch.Slot >= l.Slots || ch.Tries < 0 || ch.Tries > math.MaxInt32 || ch.Deadline < 0 {
		return refuse("slot, tries or deadline")
	}
	if ch.Fair && ch.Shared {
		return refuse("shared chains do not take turns")
	}
	if ch.here() && (ch.Fair || message != math.MaxInt || !ch.writes()) {
		return refuse("a chain with Change or Async writes, from here")
	}
	request, reply := wire.ChainRequestHead, wire.ChainReplyHead
	for i := range ch.Accesses {
		a := &ch.Accesses[i]
		request, reply = request+wire.AccessHead, reply+wire.AccessHead
		if a.Record < 0 || a.Record >= l.Records {
			return refuse("record %d of %d", a.Record, l.Records)
		}
		switch {
		case a.Kind == AccessRead && cap(a.Data) < l.Size && ch.Change == nil:
			return refuse("room for %d bytes to read, records have %d", cap(a.Data), l.Size)
		case a.Kind == AccessRead:
			reply += wire.Pad8(l.Size)
		case a.Kind == AccessWrite && ch.Shared:
			return refuse("a shared chain cannot write")
		case a.Kind == AccessWrite && len(a.Data) > l.Size:
			return refuse("%d bytes of data, records have %d", len(a.Data), l.Size)
		case a.Kind == AccessWrite && slices.ContainsFunc(ch.Accesses[:i], func(b Access) bool { return b.Kind == AccessWrite && b.Record == a.Record }):
			return refuse("record %d is written twice", a.Record)
		case a.Kind == AccessWrite:
			request += wire.Pad8(len(a.Data))
		case a.Kind != AccessCompare:
			return refuse("access of kind %d", a.Kind)
		}
	}
	if max(request, reply) > message {
		return refuse("%d bytes of accesses, messages have %d", max(request, reply), message)
	}
	return nil
}

// here reports whether the client must carry the chain out itself.
func (ch *Chain) here() bool { return ch.Change != nil || ch.Async }

// writes reports whether the chain has an access that writes.
func (ch *Chain) writes() bool {
	return slices.ContainsFunc(ch.Accesses, func(a Access) bool { return a.Kind == AccessWrite })
}
