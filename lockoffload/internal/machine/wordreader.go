package machine

import "github.com/goverbs/goverbs/lockoffload/internal/memory"

// SharedMachine gets the shared lock of a slot.
type SharedMachine interface {
	Machine
	Granted() Grant
	Attempts() int
}

// NewSharedMachine returns the machine that suits a client; held is called when the lock is
// held.
func NewSharedMachine(l *memory.Layout, tags *memory.Tagger, slot, tries int, held func()) SharedMachine {
	g := Grant{Slot: slot, Shared: true}
	if l.HasReaderBit(tags.Owner) {
		return &AcquireShared{Tags: tags, tries: tries, Grant: g, held: held}
	}
	g.word = true
	return &wordReader{Acquire: Acquire{Tags: tags, Tries: tries, Reading: true, Grant: g}, held: held}
}

func (m *AcquireShared) Granted() Grant { return m.Grant }
func (m *AcquireShared) Attempts() int  { return m.tried }

// wordReader gets the shared lock for a client that has no bit among the readers:
//
//	[CMP_SWAP lock 0 -> tag of a holder that only reads]
//
// Readers with bits go together with such a holder, and writers find the word taken. So
// of the clients without a bit one at a time has the lock.
type wordReader struct {
	Acquire
	held func()
}

func (m *wordReader) Step() (Verdict, error) {
	v, err := m.Acquire.Step()
	if v == Done && err == nil && m.held != nil {
		m.held()
	}
	return v, err
}

func (m *wordReader) Granted() Grant { return m.Grant }
func (m *wordReader) Attempts() int  { return m.Tried }
