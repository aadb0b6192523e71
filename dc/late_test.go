package dc

import "time"

// doubled makes copies of a packet and of its acknowledgement that come late,
// when the queue pairs may serve other sessions. Both are known to a device by
// no more than the number of the queue pair they go to and their own.
func (i *simInitiator) doubled(x *initiatorContext, remote, psn uint32) {
	w, l := i.w, &i.lanes[x.index]
	if w.rng.Float64() >= w.dup {
		return
	}
	session, host := l.session, l.owner.addr.GID
	delay := func() time.Duration { return time.Duration(w.rng.Int64N(int64(w.spread) + 1)) }
	w.after(delay(), func() {
		for _, t := range w.targets {
			for _, s := range t.slots {
				if s.qpn == remote && s.session != 0 && s.session != session && s.psn == psn {
					w.wrong("a late packet of session %x is carried out under session %x", session, s.session)
				}
			}
		}
	})
	w.after(delay(), func() {
		// As Soft-RoCE sees it, which takes it from the host that it is
		// connected to.
		first := l.next - uint32(len(l.jobs))
		if l.session != session && l.owner.addr.GID == host && !l.bad && !l.busy && len(l.jobs) > 0 && int32((psn-first)<<8) >= 0 {
			w.wrong("a late acknowledgement of session %x completes requests of session %x", session, l.session)
		}
	})
}
