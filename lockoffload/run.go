package lockoffload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/verbs/driver"
)

// drive drives the machine to its end, without waiting for its last list, of which it
// returns the Commit. The context ends waits, also for room in the queue, and pauses; a list
// may be over without a wait.
func (j *job) drive(ctx context.Context) (*Commit, error) {
	for begun := false; ; begun = true {
		v, err := j.m.Step()
		switch v {
		case machine.Done:
			return nil, err
		case machine.Last:
			commit, perr := j.postLast(ctx, 0)
			return commit, errors.Join(err, perr)
		case machine.Sleep:
			if err := j.sleep(ctx); err != nil {
				j.giveUp(noList)
				return nil, fmt.Errorf("%w: %w", ErrNotAcquired, err)
			}
		case machine.Post:
			list := listWaits
			timed, bound := j.clocks()
			driver.Clock(&j.flight.call, timed, bound)
			if err = j.post(ctx); err == nil {
				list = listUnderWay
				err = j.s.line.await(ctx, &j.flight)
			}
			if err != nil {
				return nil, j.interrupted(list, begun, err)
			}
			if timed {
				j.m.Base().Took = j.flight.took()
			}
			if timed && !bound {
				j.c.pace.note(j.m.Base().Took)
			}
		}
	}
}

// boundFrom is how long a READ may take at least for which a bound of its time will do: that is up to
// some ten milliseconds longer.
const boundFrom = 25 * time.Millisecond

// noted is of how many lists one has its time noted for the client's pace.
const noted = 8

// clocks reports whether the time that the machine's list takes is wanted, and whether a bound of it
// will do. A reading of the clock costs as much as a few atomics, so the pace gets few.
func (j *job) clocks() (on, bound bool) {
	if m, ok := j.m.(*machine.Reader); ok {
		return true, m.Protocol == machine.ProtocolRead && m.InTime >= boundFrom
	}
	j.lists++
	return j.lists%noted == 1, false
}

// post posts the machine's list for a caller that will wait for it. It returns the
// context's error when that ends before there is room. The session's end ends the wait too.
func (j *job) post(ctx context.Context) error {
	j.flight.list = j.m.Base().Ops
	return j.s.line.post(ctx, &j.flight, j.mr, &j.wrs)
}

// listState is how far a machine's list is when its caller gives up.
type listState uint8

const (
	noList       listState = iota
	listWaits              // for room in the queue
	listUnderWay           // at the device
)

// interrupted gives up a machine after an error of its list, and returns the error of the
// call. If the first list was not posted there is nothing to be undone. Else the machine
// needs the results of a list to undo its effects, so one that waits is posted all the same.
func (j *job) interrupted(list listState, begun bool, err error) error {
	broken := errors.Is(err, ErrBroken)
	switch {
	case list == listWaits && broken:
		j.giveUp(noList)
	case list == listUnderWay || begun:
		j.giveUp(list)
	}
	if !broken {
		err = fmt.Errorf("%w: %w", ErrNotAcquired, err)
	}
	return err
}

// giveUp has the machine undo its effects in the background, behind the list.
func (j *job) giveUp(list listState) {
	p := &Commit{c: j.c, s: j.s, slot: j.slot}
	p.asked.Store(true) // Flush alone returns its error, without a log entry
	p.register()
	j.holders.Add(1)
	go func() {
		err := j.undo(context.Background(), list)
		if errors.Is(err, ErrBroken) {
			err = nil // the target takes back what is left
		}
		if err != nil {
			err = opError("give up", p.slot, err)
		}
		j.drop()
		p.end(err)
	}()
}

func (j *job) undo(ctx context.Context, list listState) (err error) {
	switch list {
	case listWaits:
		err = j.execute(ctx)
	case listUnderWay:
		err = j.s.line.await(ctx, &j.flight)
	default:
		err = j.s.line.fault()
	}
	for err == nil {
		v, uerr := j.m.Undo()
		if v == machine.Done {
			return uerr
		}
		if err = j.execute(ctx); v == machine.Last {
			return err
		}
	}
	return err
}

// execute posts the machine's list and waits for it.
func (j *job) execute(ctx context.Context) error {
	err := j.post(ctx)
	if err == nil {
		err = j.s.line.await(ctx, &j.flight)
	}
	return err
}

// pause returns the length of the next pause, to which sleep adds a jitter of half of it
// either way.
func (j *job) pause() time.Duration {
	w := j.m.Base()
	if !w.Missed { // the lock is this client's, and others are about to leave
		return j.c.cfg.Retry.Min
	}
	p := j.c.cfg.Retry.pause(j.c.pace.roundTrip(), j.missed)
	j.missed++
	if w.HandedOn {
		p = min(p, machine.TurnGap/2)
	}
	return p
}

// sleep pauses before the next try, with jitter so that clients do not march in
// step.
func (j *job) sleep(ctx context.Context) error {
	p := j.pause()
	t := time.NewTimer(p/2 + rand.N(p+1))
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() // both may have come
	case <-j.s.lost:
		if err := j.s.line.fault(); err != nil {
			return err
		}
		return ErrLost
	case <-ctx.Done():
		return ctx.Err()
	}
}
