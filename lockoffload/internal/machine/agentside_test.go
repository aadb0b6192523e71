package machine

import (
	"bytes"
	"fmt"
)

// agentSideClient is an initiator that works on the same slots without the agent,
// one memory access a step: now a writer, now a reader.
type agentSideClient struct {
	w       *agentWorld
	owner   uint64
	at      int // 0: idle
	reader  bool
	slot    int
	seq     uint64
	version [agentSimRecords]uint64
	data    []byte
	seen    [agentSimRecords][]byte
}

func (s *agentSideClient) tag() uint64 { return s.owner<<48 | s.seq }

func (s *agentSideClient) Step(begin bool) error {
	w := s.w
	mem := &w.core.Slots
	lock, readers := mem.LockOff(s.slot), mem.ReadersOff(s.slot)
	s.at++
	switch {
	case s.at == 1:
		if !begin || w.rng.IntN(4) > 0 {
			s.at = 0
			return nil
		}
		s.reader, s.slot, s.seq = w.rng.IntN(3) == 0, w.rng.IntN(agentSimSlots), s.seq+1
	case s.reader && s.at == 2:
		w.setWord(readers, w.word(readers)+1<<s.owner)
	case s.reader && s.at == 3:
		if w.word(lock) != 0 {
			s.at = 19 // a writer: leave again
		}
	case s.reader && s.at < 20: // the same each time
		cur, err := mem.read(s.slot)
		if err != nil {
			return err
		}
		for i := range agentSimRecords {
			now, err := mem.Record(&cur, i)
			if err != nil {
				return err
			}
			if s.at > 4 && (now.Version != s.version[i] || !bytes.Equal(now.Data, s.seen[i])) {
				return fmt.Errorf("slot %d changed under a reader: version %d, then %d", s.slot, s.version[i], now.Version)
			}
			s.version[i], s.seen[i] = now.Version, bytes.Clone(now.Data)
		}
	case s.reader:
		w.setWord(readers, w.word(readers)-1<<s.owner)
		s.at = 0
	case s.at == 2:
		if w.word(lock) != 0 {
			s.at = 0
			return nil
		}
		w.setWord(lock, s.tag())
	case s.at == 3:
		if w.word(readers) != 0 {
			s.at--
		}
	case s.at == 4:
		s.data = w.data()
		cur, err := mem.read(s.slot)
		if err != nil {
			return err
		}
		next := mem.change(s.slot, &cur)
		for i := range agentSimRecords {
			now, err := mem.Record(&cur, i)
			if err != nil {
				return err
			}
			s.version[i] = now.Version + 1
			mem.Put(next, i, s.version[i], s.data)
		}
		mem.Seal(next, cur.Version+1)
	case s.at == 5: // late
	default:
		if w.word(lock) != s.tag() {
			return fmt.Errorf("slot %d was taken from its holder", s.slot)
		}
		w.setWord(lock, 0)
		s.at = 0
		for i := range agentSimRecords {
			if err := w.commit(agentSimRecord{s.slot, i}, s.version[i], s.data); err != nil {
				return err
			}
		}
	}
	return nil
}
