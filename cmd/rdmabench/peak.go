package main

import "math"

// trace is when the messages of a bandwidth test were posted and completed, for
// the peak. A post of several is one event, of the first of them: the others
// could not give a higher peak.
type trace struct {
	posts, completions []event
	posted, completed  int // messages
}

type event struct {
	message int // number of the message, from 0
	at      int64
}

// maxTraced bounds the memory of a trace.
const maxTraced = 1 << 20

func newTrace(messages int) *trace {
	return &trace{posts: make([]event, 0, messages), completions: make([]event, 0, messages)}
}

func (t *trace) post(n int, at int64) {
	t.posts = append(t.posts, event{t.posted, at})
	t.posted += n
}

func (t *trace) complete(n int, at int64) {
	t.completed += n
	t.completions = append(t.completions, event{t.completed - 1, at})
}

// fastest returns the least time per message, in nanoseconds, over all runs of
// consecutive messages i to j, from the post of i to the completion of j.
//
// It improves a guess g (Dinkelbach): the run for which time - g * messages is
// least has at most g per message, and less if g is not the least yet.
func (t *trace) fastest() float64 {
	g := math.Inf(1)
	if t.completed > 0 {
		last := t.completions[len(t.completions)-1]
		g = float64(last.at-t.posts[0].at) / float64(last.message+1)
	}
	for range 100 { // it takes a handful
		better := t.improve(g)
		if better >= g {
			break
		}
		g = better
	}
	return g
}

func (t *trace) improve(g float64) float64 {
	base := t.posts[0].at // keeps precision
	cost := func(e event, messages int) float64 { return float64(e.at-base) - g*float64(messages) }
	start, startCost := event{}, math.Inf(-1) // the post that serves runs ending here best
	best, bestCost := g, math.Inf(1)
	p := 0
	for _, end := range t.completions {
		for ; p < len(t.posts) && t.posts[p].message <= end.message; p++ {
			if c := cost(t.posts[p], t.posts[p].message); c > startCost {
				start, startCost = t.posts[p], c
			}
		}
		if c := cost(end, end.message+1) - startCost; c < bestCost {
			best, bestCost = float64(end.at-start.at)/float64(end.message+1-start.message), c
		}
	}
	return best
}
