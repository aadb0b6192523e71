package session

import (
	"time"

	"github.com/goverbs/goverbs/dc/internal/wire"
)

// The packets of a context's sessions are numbered upwards, those of a new
// session behind all before it. A late acknowledgement of an earlier session
// then has a number that the queue pair knows as acknowledged; Soft-RoCE would
// take a higher one for the acknowledgement of everything under way. A session
// that is taken up again goes back to its own numbers. That is safe unless late
// packets of another session may come from the same host.

// firstPSN returns the number of a new session's first packet: behind all that the
// queue pair has sent, and not easily guessed.
func (c *Initiator) firstPSN(x *Context) uint32 {
	x.psn = (x.psn + 1 + c.random()%128) & 0xffffff
	return x.psn
}

// number gives the next packets of a session their numbers. It notes at each post which
// ones were used: after a session with more than half of all, that could not be found out.
func (x *Context) number(packets int) {
	x.Session.PSN = (x.Session.PSN + uint32(packets)) & 0xffffff
	if int32((x.Session.PSN-x.psn)<<8) > 0 {
		x.psn = x.Session.PSN
	}
}

// departures are the hosts that a context has lately left.
type departures struct {
	hosts map[wire.GID]departure
	limit int // of entries, before those that are old are looked for
}

type departure struct {
	from    *Peer
	several bool // other targets of the host too
	until   time.Duration
}

// add notes that packets to a target, and its replies, may be under way for timeWait.
func (d *departures) add(p *Peer, now, timeWait time.Duration) {
	if d.hosts == nil {
		d.hosts = make(map[wire.GID]departure)
	}
	if len(d.hosts) >= d.limit {
		for host, e := range d.hosts {
			if e.until <= now {
				delete(d.hosts, host)
			}
		}
		d.limit = max(16, 2*len(d.hosts))
	}
	last := d.hosts[p.at.GID]
	several := now < last.until && (last.several || last.from != p)
	d.hosts[p.at.GID] = departure{p, several, now + timeWait}
}

// recent reports whether late packets of another target on the same host may come.
func (d *departures) recent(p *Peer, now time.Duration) bool {
	e := d.hosts[p.at.GID]
	return now < e.until && (e.several || e.from != p)
}
