//go:build linux

package lockoffload_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// ledger notes increments of counters by the value that they found.
type ledger struct {
	mu    sync.Mutex
	left  int // to be begun
	made  int
	forms map[string]formTally
	found map[counter][]found
}

// counter is one in a slot's record, or in its private copies.
type counter struct {
	slot int
	swap bool
}

// formTally counts the outcomes of operations of one form.
type formTally struct{ made, unknown, failed int }

// found counts the increments that found a value, by their outcome.
type found struct{ changed, unknown uint32 }

func newLedger(total int) *ledger {
	return &ledger{left: total, forms: map[string]formTally{}, found: map[counter][]found{}}
}

// next reports whether to make another increment.
func (l *ledger) next() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left--
	return l.left >= 0
}

func (l *ledger) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = 0
}

// note takes down an increment that found before.
func (l *ledger) note(form string, c counter, got outcome, before uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list, tally := l.found[c], l.forms[form]
	for uint64(len(list)) <= before {
		list = append(list, found{})
	}
	switch f := &list[before]; got {
	case changed:
		f.changed++
		tally.made++
		l.made++
	case unknown:
		f.unknown++
		tally.unknown++
	}
	l.found[c], l.forms[form] = list, tally
}

// n is how many increments were made for certain.
func (l *ledger) n() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made
}

// failed notes an operation that an error ended.
func (l *ledger) failed(form string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	tally := l.forms[form]
	tally.failed++
	l.forms[form] = tally
}

// check returns an error unless the noted increments can have brought a counter to n: each
// value below was found by one increment that was made, or by one of unknown outcome, and
// no other.
func (l *ledger) check(c counter, n uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.found[c]
	for before, f := range list {
		switch at := uint64(before); {
		case f.changed > 1, at >= n && f.changed > 0:
			return fmt.Errorf("%d increments found %d, and the counter is at %d", f.changed, before, n)
		case at < n && f.changed+f.unknown == 0:
			return fmt.Errorf("nobody found %d, and the counter is at %d", before, n)
		}
	}
	if uint64(len(list)) < n {
		return fmt.Errorf("nobody found %d, and the counter is at %d", len(list), n)
	}
	return nil
}

// The ledger finds an increment that is lost, or made twice.
func TestLedger(t *testing.T) {
	type entry struct {
		got    outcome
		before uint64
	}
	check := func(entries []entry) error {
		l := newLedger(len(entries))
		for _, e := range entries {
			l.note("update", counter{}, e.got, e.before)
		}
		return l.check(counter{}, 2)
	}
	for _, good := range [][]entry{
		{{changed, 1}, {changed, 0}},
		{{changed, 0}, {unknown, 1}},
		{{changed, 0}, {changed, 1}, {unknown, 1}},
		{{unknown, 1}, {unknown, 1}, {unknown, 0}},
		{{changed, 0}, {changed, 1}, {unknown, 2}},
	} {
		require.NoError(t, check(good))
	}
	for name, bad := range map[string][]entry{
		"one written over":           {{changed, 0}, {changed, 0}, {changed, 1}},
		"one too few":                {{changed, 0}, {changed, 1}, {changed, 2}},
		"one that nobody made":       {{changed, 0}},
		"one skipped":                {{changed, 1}, {unknown, 1}},
		"hidden by an unknown one":   {{changed, 0}, {changed, 0}, {unknown, 1}},
		"two too few, one not known": {{unknown, 0}, {changed, 1}, {changed, 2}},
	} {
		require.Error(t, check(bad), name)
	}
}
