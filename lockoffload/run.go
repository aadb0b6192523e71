package lockoffload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
)

// run drives the machine to its end and drops the job. The caller may read the machine
// afterwards if it is not the job's own.
func (j *job) run(ctx context.Context, s *session) (*Commit, error) {
	defer j.drop()
	j.s = s
	return j.drive(ctx)
}

// drive drives the machine to its end, without waiting for its last list. The context
// ends waits, also for room in the queue, and pauses; a list may be over without a wait.
func (j *job) drive(ctx context.Context) (*Commit, error) {
	running := true
	defer func() {
		if running { // a callback panics: the lock must not stay
			j.giveUp(nil, false)
		}
	}()
	for begun := false; ; begun = true {
		v, err := j.m.Step()
		switch v {
		case machine.Done:
			running = false
			j.finish()
			return nil, err
		case machine.Last:
			running = false
			p, perr := j.postLast(ctx)
			return p, errors.Join(err, perr)
		case machine.Sleep:
			if err := j.sleep(ctx); err != nil {
				running = false
				j.giveUp(nil, false)
				return nil, fmt.Errorf("%w: %w", ErrNotAcquired, err)
			}
		case machine.Post:
			posted := time.Now()
			f, err := j.post(ctx)
			if err != nil && !errors.Is(err, ErrBroken) {
				running = false
				j.noRoom(begun)
				return nil, fmt.Errorf("%w: %w", ErrNotAcquired, err)
			}
			if err == nil {
				err = j.s.line.await(ctx, f)
			}
			if err != nil {
				running = false
				j.giveUp(f, false)
				if j.s.line.fault() == nil && ctx.Err() != nil {
					err = fmt.Errorf("%w: %w", ErrNotAcquired, err)
				}
				return nil, err
			}
			j.c.pace.note(time.Since(posted))
		}
	}
}

// post posts the machine's list for a caller that will wait for it. It returns the
// context's error when that ends before there is room. The session's end ends the wait too.
func (j *job) post(ctx context.Context) (*flight, error) {
	j.flight.list = j.m.Base().Ops
	if err := j.s.line.postWithin(ctx, &j.flight, j.mr); err != nil {
		return nil, err
	}
	return &j.flight, nil
}

// noRoom ends a machine after its list could not be posted in time. If it was the first one
// there is nothing to be undone. Else the machine needs the results to undo its effects,
// so the list is posted all the same, in the background.
func (j *job) noRoom(begun bool) {
	if begun {
		j.giveUp(nil, true)
		return
	}
	j.finish()
}

// postLast posts the list with which the machine ends, in the background if there is no
// room for it before the context ends: it gives something back.
func (j *job) postLast(ctx context.Context) (*Commit, error) {
	p := j.c.newCommit(j.s, j.slot)
	j.holders.Add(1)
	p.j = j
	err := p.post(ctx)
	if err != nil && !errors.Is(err, ErrBroken) {
		go func() {
			if err := p.post(context.Background()); err != nil {
				p.ended(err)
			}
		}()
		return p, nil
	}
	if err != nil {
		p.ended(err)
		j.c.reported(p.err)
		return nil, err
	}
	return p, nil
}

// giveUp has the machine undo its effects, in the background: first the list
// under way must end, or be posted.
func (j *job) giveUp(f *flight, unposted bool) {
	p := j.c.newCommit(j.s, j.slot)
	p.asked.Store(true) // Flush alone returns its error, without a log entry
	j.holders.Add(1)
	go func() {
		var err error
		if unposted {
			f, err = j.post(context.Background())
		}
		if err == nil {
			err = j.undo(f)
		}
		if errors.Is(err, ErrBroken) {
			err = nil // the target takes back what is left
		}
		if err != nil {
			err = opError("give up", p.slot, err)
		}
		j.finish()
		j.drop()
		p.end(err)
	}()
}

func (j *job) undo(f *flight) error {
	ctx := context.Background()
	if f != nil {
		if err := j.s.line.await(ctx, f); err != nil {
			return err
		}
	} else if err := j.s.line.fault(); err != nil {
		return err
	}
	for {
		v, err := j.m.Undo()
		if v == machine.Done {
			return err
		}
		f, ierr := j.post(ctx)
		if ierr == nil {
			ierr = j.s.line.await(ctx, f)
		}
		if ierr != nil || v == machine.Last {
			return ierr
		}
	}
}

// execute posts the only list of a machine that leaves nothing to be undone, and waits for
// it: then the job may do something else. It reports whether the list was posted,
// which a context that ends before there is room for it prevents. If the context ends
// while it is under way, which is then the only error that is not [ErrBroken], ended is
// called when it is over.
func (j *job) execute(ctx context.Context, ended func(error)) (posted bool, err error) {
	if v, err := j.m.Step(); v != machine.Post {
		j.finish()
		return false, err
	}
	f, err := j.post(ctx)
	if err != nil {
		j.finish()
		return errors.Is(err, ErrBroken), err
	}
	if err = j.s.line.await(ctx, f); err == nil || errors.Is(err, ErrBroken) {
		j.finish()
		return true, err
	}
	go func() {
		err := j.s.line.await(context.Background(), f)
		j.finish()
		ended(err)
	}()
	return true, err
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
