package lockoffload

import "github.com/goverbs/goverbs/lockoffload/internal/machine"

// Protocol is how a chain was carried out.
type Protocol uint8

const (
	// ProtocolRead is one READ, without a lock.
	ProtocolRead = Protocol(machine.ProtocolRead)
	// ProtocolReadChain is lock command, READ and unlock command in one post.
	ProtocolReadChain = Protocol(machine.ProtocolReadChain)
	// ProtocolReadLocked posts the unlock command when the READ is complete.
	ProtocolReadLocked = Protocol(machine.ProtocolReadLocked)
	// ProtocolTwoStep is lock command and READ, then WRITE and unlock command.
	ProtocolTwoStep = Protocol(machine.ProtocolTwoStep)
	// ProtocolSwap writes a private copy and moves a pointer to it.
	ProtocolSwap = ProtocolTwoStep + 1
	// ProtocolAgent has the target's agent carry the chain out.
	ProtocolAgent = ProtocolTwoStep + 2
)

func (f Protocol) String() string {
	switch f {
	case ProtocolRead:
		return "read"
	case ProtocolReadChain:
		return "read chain"
	case ProtocolReadLocked:
		return "read under the lock"
	case ProtocolTwoStep:
		return "two steps"
	case ProtocolSwap:
		return "private copy and pointer swap"
	case ProtocolAgent:
		return "agent"
	}
	return "unknown form"
}

// Stats are the counts of events of all locks since the client was made.
type Stats struct {
	Tries    uint64 // lock commands
	Acquired uint64 // those that got the lock
	Failed   uint64 // those that found it held by others
	Waits    uint64 // pauses for readers
	Torn     uint64 // READs that met a WRITE, or what a dead writer left, or took too long
	Lost     uint64 // locks that were gone when they were given back
	// What was carried out, by form.
	Read, ReadChain, ReadHeld, TwoStep uint64
}

func (c *Stats) add(d Stats) {
	c.Tries += d.Tries
	c.Acquired += d.Acquired
	c.Failed += d.Failed
	c.Waits += d.Waits
	c.Torn += d.Torn
	c.Lost += d.Lost
	c.Read += d.Read
	c.ReadChain += d.ReadChain
	c.ReadHeld += d.ReadHeld
	c.TwoStep += d.TwoStep
}
