package lockoffload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// UseAgent has [Client.Do] give chains that write to the target's agent. The
// caller, which reaches the same region, stays who made it to close; nil ends
// its use.
func (c *Client) UseAgent(agent *Caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.agent = agent
}

// Do carries out a chain and waits for its outcome, in the form that suits it;
// [Result.Form] tells which:
//
//   - [FormAgent], one round trip, for a chain that writes when there is an
//     agent ([Client.UseAgent]) that is there and not busy, and for each fair one;
//   - [FormTwoStep], two round trips, for one that writes otherwise;
//   - [FormRead], one round trip, for one that only reads and does not count its
//     tries. The agent is not troubled with what needs no help;
//   - [FormReadHeld] for others that only read.
//
// Errors are those of [Caller.Do] and [Client.Update]. With [ErrDiffers] the
// accesses that read were performed all the same.
func (c *Client) Do(ctx context.Context, ch *Chain) (Result, error) {
	res, err := c.do(ctx, ch)
	if err != nil {
		return res, opError("chain on", ch.Slot, err)
	}
	return res, nil
}

func (c *Client) do(ctx context.Context, ch *Chain) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if err := ch.check(Layout(c.l), math.MaxInt); err != nil {
		return Result{}, err
	}
	records := ch.records()
	if err := c.named(ctx, ch.Slot, records); err != nil {
		return Result{}, err
	}
	if ch.Fair {
		agent, err := c.fairAgent()
		if err != nil {
			return Result{}, err
		}
		return agent.do(ctx, ch)
	}
	c.mu.Lock()
	agent := c.agent
	c.mu.Unlock()
	if agent != nil && ch.writes() && ch.check(Layout(c.l), agent.cfg.Limits.Message) == nil {
		res, err := agent.do(ctx, ch)
		if !notBegun(err) {
			return res, err
		}
	}
	if (agent == nil || agent.gone()) && ch.writes() {
		c.regainAgent()
	}
	wait := ctx
	if ch.Deadline > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, ch.Deadline)
		defer cancel()
	}
	if !ch.writes() && ch.Tries == 0 {
		return c.doRead(wait, ch)
	}
	return c.doHeld(ctx, wait, ch)
}

// notBegun tells of an agent's error whether the chain can still be carried out from
// here: the agent was busy, or is not to be reached any more.
func notBegun(err error) bool {
	gone := errors.Is(err, ErrClosed) || errors.Is(err, ErrBroken)
	return errors.Is(err, ErrBusy) || gone && !errors.Is(err, ErrOutcomeUnknown)
}

// doRead reads without a lock.
func (c *Client) doRead(ctx context.Context, ch *Chain) (Result, error) {
	records := ch.records()
	at := make([]int, c.l.Records) // of each record among them
	for i, r := range records {
		at[r] = i
	}
	got := make([]memory.Content, len(records))
	j, err := c.begin(ctx, ch.Slot, records)
	if err != nil {
		return Result{}, err
	}
	defer j.drop()
	res, err := j.read(ctx, FormRead, records, func(i int, r memory.Content) error {
		got[i] = memory.Content{Version: r.Version, Data: slices.Clone(r.Data)}
		return nil
	})
	if err != nil {
		return res, err
	}
	for i := range ch.Accesses {
		a := &ch.Accesses[i]
		r := got[at[a.Record]]
		switch {
		case a.Kind == AccessRead:
			a.Data = append(a.Data[:0], r.Data...)
		case a.Version != r.Version:
			err = ErrDiffers
		}
		a.Version, res.Version = r.Version, r.Version
	}
	return res, err
}

// doHeld carries the chain out under the lock, for which it waits until the
// context wait ends.
func (c *Client) doHeld(ctx, wait context.Context, ch *Chain) (Result, error) {
	s := c.session()
	tries := ch.Tries
	if tries == 0 {
		tries = c.cfg.Retry.Tries
	}
	m := &machine.Chain{Acquire: machine.Acquire{Tags: &s.tags, Tries: tries, Data: true, Reading: !ch.writes(), Grant: machine.Grant{Slot: ch.Slot}}}
	m.Allowed = s.allowed
	for _, a := range ch.Accesses {
		m.Accesses = append(m.Accesses, machine.Access{Kind: wire.AccessKind(a.Kind), Record: a.Record, Version: a.Version, Data: a.Data})
	}
	res := Result{Form: Form(m.Form())}
	j, err := c.start(m, ch.Slot)
	if err != nil {
		return res, err
	}
	j.wrote = func() bool { return m.Wrote }
	commit, err := j.run(wait, s)
	for i := range m.Accesses {
		ch.Accesses[i].Version, ch.Accesses[i].Data = m.Accesses[i].Version, m.Accesses[i].Data
	}
	res.Tries, res.Version = m.Tried, m.Version
	if err != nil || commit == nil {
		return res, err
	}
	if err := commit.Wait(ctx); err != nil {
		if m.Wrote && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
		return res, err
	}
	return res, nil
}
