// Package advice decides how the clients of a server find records: in maps of their own, to which
// the server sends every change, or by READs of its table. A map saves each hit a READ, and costs
// a message of a few bytes for each change and client. It has no I/O, clocks or locks.
//
//	maps    the stream costs more than twice what it may, for 10 s ───────▶ probes
//	probes  stream and new maps cost less than half of that, for 60 s ────▶ maps
//
// What the stream may cost is what the probes would cost in its place, or [Free] if that is more.
// Costs are bytes a second that the server's port carries.
package advice

import (
	"time"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

const (
	// Free is what the stream may cost in any case: a network of 10 Gbit/s carries 150 times that.
	Free = 8 << 20

	deltaBytes = 21                      // of most changes, for each client
	entryBytes = wire.EntrySize          // of each record, in a new map
	probeBytes = wire.BucketSize * 9 / 8 // of each hit: one in eight needs the second bucket
	window     = 5 * time.Second         // between two looks at the load
	toProbes   = 10 * time.Second        // of a stream that costs too much
	toMaps     = 60 * time.Second        // of one that would not
	repaid     = float64(toMaps) / 1e9   // seconds in which a new map must be worth its entries
	share      = 32                      // of the clients get a map at a time
	apart      = 2                       // factor between the costs at which the advice changes, and equal ones
)

// Load is what a server has counted.
type Load struct {
	Clients int    // that follow the advice
	Records int    // that there are
	Changes uint64 // of the map, until now
	Reads   uint64 // hits by READ, until now
}

// Advice is the state of one server. The zero value advises maps. Times count from any moment.
type Advice struct {
	probes bool
	last   time.Duration // when the load was looked at
	before Load          // what there was then
	since  time.Duration // when the other way began to cost less; 0: it does not
}

// Probes returns the advice: whether clients are to probe.
func (a *Advice) Probes() bool { return a.probes }

// Observe takes what there is at a time, and returns the advice.
func (a *Advice) Observe(now time.Duration, l Load) (probes bool) {
	passed := now - a.last
	if passed < window {
		return a.probes
	}
	second := passed.Seconds()
	better := a.better(l, float64(l.Changes-a.before.Changes)/second, float64(l.Reads-a.before.Reads)/second)
	if a.last, a.before = now, l; !better {
		a.since = 0
		return a.probes
	}
	if a.since == 0 {
		a.since = now
	}
	after := toProbes
	if a.probes {
		after = toMaps
	}
	if now-a.since >= after {
		a.probes, a.since = !a.probes, 0
	}
	return a.probes
}

// better reports whether the other way would cost much less, with so many changes and READs a second.
func (a *Advice) better(l Load, changes, reads float64) bool {
	stream, limit := float64(l.Clients)*changes*deltaBytes, max(reads*probeBytes, Free)
	if !a.probes {
		return stream > apart*limit
	}
	maps := float64(l.Clients) * float64(l.Records) * entryBytes / repaid
	return stream+maps < limit/apart
}

// Moves returns how many of the clients that do not follow the advice yet, of so many in all, are to do so
// now: all of them if they are to probe, as that costs nothing, and otherwise few at a time, as each is sent
// the map.
func (a *Advice) Moves(clients int) int {
	if a.probes {
		return clients
	}
	return (clients + share - 1) / share
}
