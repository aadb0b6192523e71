package lockoffload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// Do carries out a chain and waits for its outcome, in the form that suits it,
// which is in [Result.Protocol]:
//
//   - [ProtocolAgent], one round trip, for a chain that writes when there is an
//     agent ([Client.UseAgent]) that is there and not busy, and for each fair one;
//   - [ProtocolTwoStep], two round trips, for one that writes otherwise;
//   - [ProtocolRead], one round trip and no lock, for one that only reads and does not
//     count its tries. It does not involve the agent;
//   - [ProtocolReadChain], one round trip, for others that only read. It takes the lock, which
//     limits the tries; its data is as consistent as that of ProtocolRead;
//   - [ProtocolReadLocked] after four ProtocolRead, or one ProtocolReadChain, that met a WRITE or were late.
//
// The accesses of a chain happen at one moment. When the client dies in the middle, all
// records have their old data, or all their new. With [ErrNotAcquired] and [ErrVersionMismatch]
// nothing was changed, and with [ErrOutcomeUnknown] it cannot be told. With ErrVersionMismatch
// the accesses that read were performed all the same.
//
// ch and its memory are the caller's again when Do returns. It allocates nothing, but the
// [Commit] of an asynchronous chain.
func (c *Client) Do(ctx context.Context, ch *Chain) (Result, error) {
	res, err := c.do(ctx, ch)
	if err != nil {
		return res, opError("chain on", ch.Slot, err)
	}
	return res, nil
}

func (c *Client) do(ctx context.Context, ch *Chain) (Result, error) {
	if err := c.named(ctx, ch.Slot); err != nil {
		return Result{}, err
	}
	if err := ch.check(Layout(c.l), math.MaxInt); err != nil {
		return Result{}, err
	}
	if len(ch.Accesses) == 0 {
		return Result{}, fmt.Errorf("%w: no accesses", ErrConfig)
	}
	if ch.Fair {
		agent, err := c.fairAgent()
		if err != nil {
			return Result{}, err
		}
		return agent.do(ctx, ch)
	}
	if ch.writes() && !ch.here() {
		if res, begun, err := c.doAgent(ctx, ch); begun {
			return res, err
		}
	}
	return c.doHere(ctx, ch)
}

// doAgent has the agent carry out a chain, and reports whether it has begun to: there may
// be none, or none with room for it.
func (c *Client) doAgent(ctx context.Context, ch *Chain) (res Result, begun bool, err error) {
	c.mu.Lock()
	agent := c.agent
	c.mu.Unlock()
	if agent != nil && ch.check(Layout(c.l), agent.cfg.Limits.Message) == nil {
		if res, err = agent.do(ctx, ch); !notBegun(err) {
			return res, true, err
		}
	}
	if agent == nil || agent.gone() {
		c.regainAgent()
	}
	return Result{}, false, nil
}

// notBegun reports whether the client can still carry out a chain for which the agent's
// caller returned err: the agent was busy, or can no longer be reached.
func notBegun(err error) bool {
	gone := errors.Is(err, ErrClosed) || errors.Is(err, ErrBroken)
	return errors.Is(err, ErrBusy) || gone && !errors.Is(err, ErrOutcomeUnknown)
}

// doHere carries the chain out from here.
func (c *Client) doHere(ctx context.Context, ch *Chain) (Result, error) {
	wait := ctx // for the lock
	if ch.Deadline > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, ch.Deadline)
		defer cancel()
	}
	j, err := c.begin(ctx, ch.Slot)
	if err != nil {
		return Result{}, err
	}
	defer j.drop()
	for i := range ch.Accesses {
		a := &ch.Accesses[i]
		j.accesses = append(j.accesses, machine.Access{Kind: wire.AccessKind(a.Kind), Record: a.Record, Version: a.Version, Data: a.Data})
	}
	if !ch.writes() {
		res, err := j.read(wait, ch.Tries)
		ch.note(j.accesses)
		return res, err
	}
	res, err := j.lock(wait, cmp.Or(ch.Tries, c.cfg.Retry.Tries))
	if err == nil {
		if err = j.chain.Look(); err == nil && ch.Change != nil {
			err = j.change(ch)
		}
		res, err = j.unlock(wait, err)
	}
	ch.note(j.accesses)
	if err != nil || ch.Async {
		return res, err
	}
	err = j.outcome(ctx, &res)
	return res, err
}

// change has the Change of a chain set the data to be written.
func (j *job) change(ch *Chain) error {
	j.chain.View()
	ch.note(j.accesses)
	returned := false
	defer j.unlockUnless(&returned)
	err := ch.Change(ch.Accesses)
	returned = true
	for i := range j.accesses {
		if a := &j.accesses[i]; a.Kind == wire.AccessWrite {
			a.Data = ch.Accesses[i].Data
		}
	}
	return err
}

// note copies versions and data of accesses into the chain.
func (ch *Chain) note(accesses []machine.Access) {
	for i := range accesses {
		ch.Accesses[i].Version, ch.Accesses[i].Data = accesses[i].Version, accesses[i].Data
	}
}
