// Package shaper decides which request goes next: the state machine of paced
// GETs, without device, clock, goroutines and locks.
//
// The host puts commands into flow queues. Slicing units take flow queues in turn, as they become
// free, and present one request packet at a time: a whole PUT, or a piece of a GET.
// The shaper arbitrates between the units: it passes over a packet with a response that
// would exceed a limit, and looks at the next. A granted packet counts until it
// completes, fails, is flushed or could not be posted.
//
//	s.Submit(flow, Command{Kind: Get, Length: 1 << 20, Tag: 7}, now)
//	for g, ok := s.Next(now); ok; g, ok = s.Next(now) { ... } // post them
//	s.Completed(g.Sub, now)
//	for r, ok := s.Finished(); ok; r, ok = s.Finished() { ... }
//
// Admit is Submit and Next at once for a request that nothing holds.
//
// Nothing allocates but AddFlow, and Submit and Admit as long as more is under way than
// ever before.
package shaper
