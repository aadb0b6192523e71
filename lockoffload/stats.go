package lockoffload

// Form is how a chain was carried out.
type Form uint8

const (
	// FormReadChain is lock command, READ and unlock command in one post.
	FormReadChain Form = iota
	// FormSharedChain is the same with the shared lock: such chains do not
	// keep each other out.
	FormSharedChain
	// FormReadHeld posts the unlock command when the READs are complete.
	FormReadHeld
	// FormTwoStep is lock command and READs, then WRITEs and unlock command.
	FormTwoStep
	// FormSwap writes a private copy and moves a pointer to it.
	FormSwap
	// FormAgent has the target's agent carry the chain out.
	FormAgent
)

func (f Form) String() string {
	switch f {
	case FormReadChain:
		return "read chain"
	case FormSharedChain:
		return "shared chain"
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

// Counts are what happened to a lock, or to all of them, since the client was
// made.
type Counts struct {
	Tries    uint64 // lock commands
	Acquired uint64 // those that got the lock
	Failed   uint64 // those that found it held by others
	Waits    uint64 // pauses for readers, or for a ticket's turn
	Torn     uint64 // chains whose READ met a WRITE, or what a dead writer left
	Lost     uint64 // locks that were gone when they were given back
	// Chains that were carried out, by form.
	ReadChain, SharedChain, ReadHeld, TwoStep uint64
}

func (c *Counts) add(d Counts) {
	c.Tries += d.Tries
	c.Acquired += d.Acquired
	c.Failed += d.Failed
	c.Waits += d.Waits
	c.Torn += d.Torn
	c.Lost += d.Lost
	c.ReadChain += d.ReadChain
	c.SharedChain += d.SharedChain
	c.ReadHeld += d.ReadHeld
	c.TwoStep += d.TwoStep
}

func (c *Counts) carriedOut(f Form) {
	switch f {
	case FormReadChain:
		c.ReadChain++
	case FormSharedChain:
		c.SharedChain++
	case FormReadHeld:
		c.ReadHeld++
	case FormTwoStep:
		c.TwoStep++
	}
}
