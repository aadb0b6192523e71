package lockoffload

import (
	"bytes"
	"fmt"
)

// sideClient is an initiator that works on the same slots without the agent,
// one memory access a step: now a writer, now a reader.
type sideClient struct {
	w       *agentWorld
	owner   uint64
	at      int // 0: idle
	reader  bool
	slot    int
	seq     uint64
	version [simRecords]uint64
	data    []byte
	seen    [simRecords][]byte
}

func (s *sideClient) tag() uint64 { return s.owner<<48 | s.seq }

func (s *sideClient) step(begin bool) error {
	w := s.w
	mem := &w.core.slots
	lock, readers := mem.lockOff(s.slot), mem.readersOff(s.slot)
	s.at++
	switch {
	case s.at == 1:
		if !begin || w.rng.IntN(4) > 0 {
			s.at = 0
			return nil
		}
		s.reader, s.slot, s.seq = w.rng.IntN(3) == 0, w.rng.IntN(simSlots), s.seq+1
	case s.reader && s.at == 2:
		w.setWord(readers, w.word(readers)+1<<s.owner)
	case s.reader && s.at == 3:
		if w.word(lock) != 0 {
			s.at = 19 // a writer: leave again
		}
	case s.reader && s.at < 20: // the same each time
		for i := range simRecords {
			now, err := mem.read(s.slot, i)
			if err != nil {
				return err
			}
			if s.at > 4 && (now.version != s.version[i] || !bytes.Equal(now.data, s.seen[i])) {
				return fmt.Errorf("slot %d changed under a reader: version %d, then %d", s.slot, s.version[i], now.version)
			}
			s.version[i], s.seen[i] = now.version, bytes.Clone(now.data)
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
	case s.at <= 5:
		rec := s.at - 4
		if rec == 0 {
			s.data = w.data()
		}
		now, err := mem.read(s.slot, rec)
		if err != nil {
			return err
		}
		s.version[rec] = now.version + 1
		mem.write(s.slot, rec, now, s.data)
	default:
		if w.word(lock) != s.tag() {
			return fmt.Errorf("slot %d was taken from its holder", s.slot)
		}
		w.setWord(lock, 0)
		s.at = 0
		for i := range simRecords {
			if err := w.commit(simRecord{s.slot, i}, s.version[i], s.data); err != nil {
				return err
			}
		}
	}
	return nil
}
