package lockoffload

import "github.com/goverbs/goverbs/lockoffload/internal/memory"

// sharedMachine gets the shared lock of a slot.
type sharedMachine interface {
	machine
	granted() grant
	attempts() int
}

// newSharedMachine makes the one that suits a client; held is called when the lock is
// held.
func newSharedMachine(l *memory.Layout, tags *memory.Tagger, slot, tries int, held func()) sharedMachine {
	g := grant{slot: slot, shared: true}
	if l.HasReaderBit(tags.Owner) {
		return &acquireShared{tags: tags, tries: tries, grant: g, held: held}
	}
	g.word = true
	return &wordReader{acquire: acquire{tags: tags, tries: tries, reading: true, grant: g}, held: held}
}

func (m *acquireShared) granted() grant { return m.grant }
func (m *acquireShared) attempts() int  { return m.tried }

// wordReader gets the shared lock for a client that has no bit among the readers:
//
//	[CMP_SWAP lock 0 -> tag of a holder that only reads]
//
// Readers with bits go together with such a holder, and writers find the word taken. So
// of the clients without a bit one at a time has the lock.
type wordReader struct {
	acquire
	held func()
}

func (m *wordReader) step() (verdict, error) {
	v, err := m.acquire.step()
	if v == done && err == nil && m.held != nil {
		m.held()
	}
	return v, err
}

func (m *wordReader) granted() grant { return m.grant }
func (m *wordReader) attempts() int  { return m.tried }
