//go:build linux

package lockoffload_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/lockoffload"
)

// No increment is lost, in all forms together, with reads of all forms between
// them. The short version makes 1000, the long one a million, or as many as a
// quarter of go test's time permits, which on Soft-RoCE in an emulated machine
// are far fewer. GOVERBS_INCREMENTS asks for another number, and may take all
// of the time.
func TestCounterLosesNoUpdate(t *testing.T) {
	const least, slots, clients, goroutines = 1000, 3, 4, 2
	total, part := 1_000_000, time.Duration(4)
	if testing.Short() {
		total, part = least, 1
	}
	if n, err := strconv.Atoi(os.Getenv("GOVERBS_INCREMENTS")); err == nil {
		total, part = n, 1
	}
	lasts := 30 * time.Minute
	if end, ok := t.Deadline(); ok {
		lasts = (time.Until(end) - time.Minute) / part
	}
	seed := testseed.New(t)
	ctx := within(t, lasts+stuck)
	r := newAgentRig(t, lockoffload.Layout{Slots: slots + 1, Size: 8, Swap: 2 * clients}, nil)
	count := newLedger(total)
	var places livePlaces
	var wg sync.WaitGroup
	for i := range clients {
		c, place := r.client(lockoffload.Retry{})
		places.add(c, place)
		a := actor{c: c, agent: r.caller(nil), size: 8}
		c.UseAgent(a.agent)
		for k := range goroutines {
			w := counting{actor: a, ledger: count, slots: slots, rng: rand.New(rand.NewPCG(seed, uint64(i*goroutines+k))), seen: map[counter]uint64{}}
			wg.Go(func() {
				if err := w.work(ctx); err != nil {
					t.Error(err)
				}
			})
		}
	}
	began, over := time.Now(), make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	minutes := time.NewTicker(time.Minute)
	defer minutes.Stop()
	for ended := false; !ended; {
		select {
		case <-over:
			ended = true
		case <-minutes.C:
			t.Logf("%d increments so far", count.n())
		case <-tick.C:
		}
		if time.Since(began) > lasts {
			count.stop()
		}
		places.renew(ctx, &r.rig)
	}
	took, made := time.Since(began), count.n()
	t.Logf("%d increments in %v, %.0f/s: %+v; %d connections made again", made, took.Round(time.Second),
		float64(made)/took.Seconds(), count.forms, places.renewed)
	for c := range places.of {
		require.NoError(t, c.Flush(ctx))
		t.Logf("%+v", c.Stats())
	}
	t.Logf("agent %+v", r.agent.Stats())
	if t.Failed() {
		return
	}
	require.GreaterOrEqual(t, made, min(total, least))
	for c := range places.of {
		for slot := range slots {
			data, res, err := c.Read(ctx, slot, make([]byte, 8))
			require.NoError(t, err)
			require.Equal(t, res.Version, number(data), "one version for each increment")
			require.NoError(t, count.check(counter{slot, false}, number(data)))
			data, res, err = c.SwapRead(ctx, slot, make([]byte, 8))
			require.NoError(t, err)
			require.Equal(t, res.Version, number(data))
			require.NoError(t, count.check(counter{slot, true}, number(data)))
		}
	}
}

// counting is one goroutine's share.
type counting struct {
	actor
	ledger *ledger
	slots  int
	rng    *rand.Rand
	seen   map[counter]uint64 // their values at least
}

func (w *counting) work(ctx context.Context) error {
	for w.ledger.next() {
		for done := false; !done; {
			form := addForms[w.rng.IntN(len(addForms))]
			c := counter{w.rng.IntN(w.slots), form == "swap"}
			session := w.c.Lost()
			got, before, err := w.add(ctx, form, c.slot)
			if got != nothing {
				w.ledger.note(form, c, got, before)
				if err := w.saw(form, c, before); err != nil {
					return err
				}
			}
			if done = got == changed; done {
				w.seen[c]++
			}
			if err := w.rest(ctx, form, session, err); err != nil {
				return err
			}
		}
		if w.rng.IntN(4) > 0 {
			continue
		}
		form := []string{"read", "shared", "swap read"}[w.rng.IntN(3)]
		c := counter{w.rng.IntN(w.slots), form == "swap read"}
		session, now, err := w.c.Lost(), uint64(0), error(nil)
		if form == "shared" {
			_, now, err = w.sharedRead(ctx, c.slot)
		} else {
			now, err = w.count(ctx, c.slot, c.swap)
		}
		if err == nil {
			err = w.saw(form, c, now)
		}
		if err := w.rest(ctx, form, session, err); err != nil {
			return err
		}
	}
	return nil
}

// saw complains when a counter went back.
func (w *counting) saw(form string, c counter, now uint64) error {
	if last := w.seen[c]; now < last {
		return fmt.Errorf("%s: the counter went from %d back to %d", form, last, now)
	}
	w.seen[c] = now
	return nil
}

// rest waits when a connection failed, which on Soft-RoCE it may without a reason
// where an acknowledgement is late: it will be made again. An error of a session
// that goes on is none of these.
func (w *counting) rest(ctx context.Context, form string, session <-chan struct{}, err error) error {
	if err == nil {
		return nil
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", form, err)
	case anyOf(err, lockoffload.ErrBroken, lockoffload.ErrLost):
		select {
		case <-session:
		case <-time.After(soon):
			return fmt.Errorf("%s, and the session goes on: %w", form, err)
		}
	case form != "agent" || !errors.Is(err, lockoffload.ErrOutcomeUnknown):
		return fmt.Errorf("%s: %w", form, err)
	}
	w.ledger.failed(form)
	time.Sleep(50 * time.Millisecond)
	return nil
}

// livePlaces are the places of clients at the target.
type livePlaces struct {
	of      map[*lockoffload.Client]*lockoffload.Session
	renewed int
}

func (p *livePlaces) add(c *lockoffload.Client, s *lockoffload.Session) {
	if p.of == nil {
		p.of = map[*lockoffload.Client]*lockoffload.Session{}
	}
	p.of[c] = s
}

// renew connects those again whose session is over.
func (p *livePlaces) renew(ctx context.Context, r *rig) {
	for c, place := range p.of {
		select {
		case <-c.Lost():
			require.NoError(r.t, place.Evict()) // as when its lease is over
			qp, cq, place, in := r.admit()
			require.NoError(r.t, c.Reconnect(ctx, qp, cq, in))
			p.of[c] = place
			p.renewed++
		default:
		}
	}
}
