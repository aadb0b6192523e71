package lockoffload

import "github.com/goverbs/goverbs/lockoffload/internal/machine"

// Form is how a chain was carried out.
type Form uint8

const (
	// FormRead is one READ, without a lock.
	FormRead = Form(machine.FormRead)
	// FormReadChain is lock command, READ and unlock command in one post.
	FormReadChain = Form(machine.FormReadChain)
	// FormReadHeld posts the unlock command when the READ is complete.
	FormReadHeld = Form(machine.FormReadHeld)
	// FormTwoStep is lock command and READ, then WRITE and unlock command.
	FormTwoStep = Form(machine.FormTwoStep)
	// FormSwap writes a private copy and moves a pointer to it.
	FormSwap = FormTwoStep + 1
	// FormAgent has the target's agent carry the chain out.
	FormAgent = FormTwoStep + 2
)

func (f Form) String() string {
	switch f {
	case FormRead:
		return "read"
	case FormReadChain:
		return "read chain"
	case FormReadHeld:
		return "read under the lock"
	case FormTwoStep:
		return "two steps"
	case FormSwap:
		return "private copy and pointer swap"
	case FormAgent:
		return "agent"
	}
	return "unknown form"
}

// Counts are the counts of events of a lock, or of all locks, since the client was
// made.
type Counts struct {
	Tries    uint64 // lock commands
	Acquired uint64 // those that got the lock
	Failed   uint64 // those that found it held by others
	Waits    uint64 // pauses for readers
	Torn     uint64 // READs that met a WRITE, or what a dead writer left, or took too long
	Lost     uint64 // locks that were gone when they were given back
	// What was carried out, by form.
	Read, ReadChain, ReadHeld, TwoStep uint64
}

func (c *Counts) add(d Counts) {
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
