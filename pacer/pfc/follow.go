package pfc

import (
	"cmp"
	"context"
	"io"
	"time"

	"github.com/goverbs/goverbs/pacer"
)

// Config says how counters are followed; its zero value is useful.
type Config struct {
	Every time.Duration // how often they are read; 0 means 10 ms
	// MaxHold is how long the link partner can hold everything with pauses that do not
	// end; then requests go for one reading, and it begins anew. 0 means 100 ms.
	MaxHold time.Duration
}

// Watch controls a pacer by the counters of source until ctx ends or they can no longer be
// read, and returns the error of either. The pacer is not held when it returns, and a
// source that has a Close is closed.
func Watch(ctx context.Context, p *pacer.Pacer, source Source, c Config) error {
	if closer, ok := source.(io.Closer); ok {
		defer closer.Close()
	}
	defer p.PauseLink(false)
	f := follower{most: cmp.Or(c.MaxHold, 100*time.Millisecond)}
	t := time.NewTicker(cmp.Or(c.Every, 10*time.Millisecond))
	defer t.Stop()
	start := time.Now()
	for {
		now, err := source.Read()
		if err != nil {
			return err
		}
		held := f.held
		flooded := f.step(now, time.Since(start))
		if flooded {
			p.Congested()
		}
		if held != f.held {
			p.PauseLink(f.held)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// follower is the state that follows from the readings.
type follower struct {
	most  time.Duration
	last  Counters
	begun bool
	held  bool
	since time.Duration // held
}

// step handles a reading, and reports whether this host asked for a pause since the last one.
// Counters that are less than before began anew: the device was reset.
func (f *follower) step(c Counters, now time.Duration) (flooded bool) {
	last := f.last
	f.last = c
	if !f.begun {
		f.begun = true
		return false
	}
	switch asked := c.Received > last.Received; {
	case !asked || f.held && now-f.since >= f.most:
		f.held = false
	case !f.held:
		f.held, f.since = true, now
	}
	return c.Sent > last.Sent
}
