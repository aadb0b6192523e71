package pacer

import "github.com/goverbs/goverbs/histogram"

// Stats are counters and gauges of a pacer.
type Stats struct {
	Outstanding int64        // response bytes
	Sending     int64        // bytes of PUTs under way
	Threshold   int64        // response bytes that may be outstanding now
	Alive       int          // requests that are not over
	Granted     uint64       // request packets
	Solicited   uint64       // response bytes asked for
	Passes      uint64       // a unit was passed over for another
	Reissued    uint64       // pieces of READs issued again
	Failed      uint64       // request packets that failed
	Probes      uint64       // times that the tuner measured the delay of the idle path
	Floods      uint64       // times that the interface could not absorb what came
	Overdue     uint64       // request packets that came too late, or not yet: others had their credit
	Classes     []ClassStats // in the order of Config.Classes
}

// ClassStats are the counters and gauges of a class.
type ClassStats struct {
	Name        string           // of the class
	Outstanding int64            // response bytes
	Queued      int              // requests that are not granted as a whole
	Granted     uint64           // request packets
	Solicited   uint64           // response bytes asked for
	Passes      uint64           // a request was passed over for another
	Waits       histogram.Counts // until the first grant of each request, in nanoseconds
}

// Stats returns the counters and gauges.
func (p *Pacer) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.s.Stats()
	out := Stats{s.Outstanding, s.Sending, s.Threshold, s.Alive, s.Granted, s.Solicited, s.Passes, s.Reissued, s.Failed, s.Probes, s.Floods, s.Overdue, nil}
	for i := range p.s.Classes() {
		out.Classes = append(out.Classes, ClassStats(p.s.ClassStats(i)))
	}
	return out
}
