package lockoffload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/verbs/driver"
)

// read runs accesses that change nothing: without a lock, unless tries of it are counted.
func (j *job) read(ctx context.Context, tries int) (Result, error) {
	m := &j.reader
	*m = machine.Reader{} // in place; a literal would be made elsewhere and copied
	if tries > 0 {
		m.Protocol = machine.ProtocolReadChain
	}
	m.Tags, m.Accesses, m.Tries, m.Grant.Slot = &j.s.tags, j.accesses, cmp.Or(tries, j.c.cfg.Retry.Tries), j.slot
	m.Reading, m.Data, m.InTime = true, true, machine.ReadTime(j.s.lease)
	j.prepare(m)
	_, err := j.drive(ctx)
	return Result{Tries: m.Reads + m.Tried, Protocol: Protocol(m.Protocol), Version: m.Version}, err
}

// lock takes the lock of a slot and reads its data, the first round trip of a change.
// Without an error unlock must follow.
func (j *job) lock(ctx context.Context, tries int) (Result, error) {
	m := &j.chain
	*m = machine.Chain{}
	m.Tags, m.Accesses, m.Tries, m.Grant.Slot, m.Data = &j.s.tags, j.accesses, tries, j.slot, true
	j.prepare(m)
	_, err := j.drive(ctx)
	return Result{Protocol: ProtocolTwoStep, Tries: m.Tried}, err
}

// unlock posts the WRITE and the unlock command, and after an error, which it returns, the
// unlock command alone. That it is not too late for the WRITE is seen when it is posted.
func (j *job) unlock(ctx context.Context, err error) (Result, error) {
	var commit *Commit
	if err = j.chain.End(err); err == nil {
		commit, err = j.postLeased(ctx, &j.chain)
	} else {
		var perr error
		commit, perr = j.postLast(ctx, 0)
		err = errors.Join(err, perr)
	}
	return Result{Protocol: ProtocolTwoStep, Commit: commit, Tries: j.chain.Tried, Version: j.chain.Version}, err
}

// revocable is a machine with a last list that writes, of which Revoke leaves the unlock command.
type revocable interface{ Revoke() }

// postLeased is postLast for a list that writes under the lease. If the lease is over by the time of the post, it posts
// the unlock command alone, and returns the error.
func (j *job) postLeased(ctx context.Context, m revocable) (*Commit, error) {
	for {
		if until := j.s.until.Load(); until != longOver {
			if commit, err := j.postLast(ctx, until); err != errLate {
				return commit, err
			}
		}
		if lost := j.s.allowed(); lost != nil { // else heartbeats have extended the lease meanwhile
			m.Revoke()
			commit, err := j.postLast(ctx, 0)
			return commit, errors.Join(lost, err)
		}
	}
}

// unlockUnless gives the lock back if a function of the program has not returned: it
// panics, or has ended its goroutine.
func (j *job) unlockUnless(returned *bool) {
	if !*returned {
		j.giveUp(noList)
	}
}

// outcome waits for the outcome of a change.
func (j *job) outcome(ctx context.Context, res *Result) error {
	err := res.Commit.Wait(ctx)
	if err == nil {
		res.Commit = j.reuse(res.Commit)
		return nil
	}
	if j.chain.Wrote && ctx.Err() != nil && !errors.Is(err, ErrOutcomeUnknown) {
		err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return err
}

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
			if err = j.post(ctx, 0); err == nil {
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
// From the time until on, unless that is 0, nothing is posted, and the error is errLate.
func (j *job) post(ctx context.Context, until int64) error {
	j.flight.list, j.flight.until = j.m.Base().Ops, until
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
// needs the results of a list to undo its effects, so one that waits is posted all the same;
// but not the WRITE of a swap, which would come behind later swaps of the client, over a copy
// that they have made current.
func (j *job) interrupted(list listState, begun bool, err error) error {
	broken := errors.Is(err, ErrBroken)
	_, swap := j.m.(*machine.SwapWriter)
	switch {
	case list == listWaits && broken:
		j.giveUp(noList)
	case list == listUnderWay || begun && !swap:
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
	err := j.post(ctx, 0)
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
