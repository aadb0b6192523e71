package lockoffload

import (
	"errors"

	"github.com/goverbs/goverbs/verbs"
)

// agentRecovery gives back the locks that an agent before this one left, which
// failed in the middle. Nothing of it is under way any more: its queue pair is
// gone.
type agentRecovery struct {
	work
	peek  func(off int) uint64
	slot  int
	freed int
}

func (m *agentRecovery) step() (verdict, error) {
	for m.slot < m.l.Slots {
		off := m.l.lockOff(m.slot)
		m.slot++
		if tag := m.peek(off); tag>>48 == agentOwner {
			m.begin()
			m.cmpSwap(off, tag, 0)
			m.freed++
			return post, nil
		}
	}
	return done, nil
}

func (m *agentRecovery) undo() (verdict, error) { return done, nil }

// recoverAgent answers how many locks an earlier agent had left.
func recoverAgent(pd *verbs.PD, gid verbs.GIDEntry, r *Region) (int, error) {
	lb, err := newLoopback(pd, gid, r)
	if err != nil {
		return 0, err
	}
	m := &agentRecovery{peek: func(off int) uint64 {
		v, _ := r.mr.Load64(off)
		return v
	}}
	err = lb.drive(m)
	return m.freed, errors.Join(err, lb.close())
}
