package pending

import "slices"

// table decides which pending connections stay. It has no locks or clocks.
type table[S comparable] struct {
	total, each int // at most so many connections, and so many of one source
	abreast     int // so many of a source have their turn at a time, the oldest
	sources     map[S][]*entry
	n           int
	last        uint64
}

type entry struct {
	order   uint64 // grows from one connection to the next
	evict   func()
	evicted bool
	turn    chan struct{} // closes when the connection has its turn
}

// admit adds the newest connection of a source. If there is no room, it returns the
// connection that loses its place: the oldest one of the source that has most, or, if
// several have as many, the oldest of theirs.
func (t *table[S]) admit(from S, e *entry) (evicted *entry) {
	t.last++
	e.order = t.last
	t.sources[from] = append(t.sources[from], e)
	t.n++
	if len(t.sources[from]) <= t.abreast {
		close(e.turn)
	}
	loser := from
	if len(t.sources[from]) <= t.each {
		if t.n <= t.total {
			return nil
		}
		loser = t.largest()
	}
	evicted = t.sources[loser][0]
	evicted.evicted = true
	t.remove(loser, evicted)
	return evicted
}

func (t *table[S]) largest() (largest S) {
	var most []*entry
	for s, list := range t.sources {
		if len(list) > len(most) || len(list) == len(most) && list[0].order < most[0].order {
			largest, most = s, list
		}
	}
	return largest
}

// remove takes a connection out if it is there.
func (t *table[S]) remove(from S, e *entry) {
	list := t.sources[from]
	i := slices.Index(list, e)
	if i < 0 {
		return
	}
	t.n--
	if len(list) == 1 {
		delete(t.sources, from)
		return
	}
	list = slices.Delete(list, i, i+1)
	if i < t.abreast && len(list) >= t.abreast {
		close(list[t.abreast-1].turn)
	}
	t.sources[from] = list
}
