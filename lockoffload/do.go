package lockoffload

import (
	"context"
	"errors"
	"fmt"
	"math"
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
//     agent ([Client.UseAgent]) that is not busy;
//   - [FormTwoStep], two round trips, for one that writes otherwise;
//   - [FormReadChain] or [FormSharedChain], one round trip, for one that reads
//     a single record, and neither counts its tries nor waits its turn;
//   - [FormReadHeld] for others that only read. The agent is not troubled with
//     what needs no help.
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
	if err := ch.check(c.l, math.MaxInt); err != nil {
		return Result{}, err
	}
	records, _ := ch.records()
	if err := c.named(ch.Slot, records); err != nil {
		return Result{}, err
	}
	c.mu.Lock()
	agent := c.agent
	c.mu.Unlock()
	if agent != nil && ch.writes() && ch.check(c.l, agent.cfg.Limits.Message) == nil {
		// What was not begun can still be done from here.
		res, err := agent.do(ctx, ch)
		if !errors.Is(err, ErrBusy) && (!errors.Is(err, ErrClosed) || errors.Is(err, ErrOutcomeUnknown)) {
			return res, err
		}
	}
	wait := ctx
	if ch.Deadline > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, ch.Deadline)
		defer cancel()
	}
	if !ch.writes() && !ch.Fair && len(records) == 1 && ch.Tries == 0 {
		return c.doRead(wait, ch, records)
	}
	return c.doHeld(ctx, wait, ch)
}

// doRead reads one record in one post.
func (c *Client) doRead(ctx context.Context, ch *Chain, records []int) (Result, error) {
	data, res, err := c.ReadRecords(ctx, ch.Slot, records, [][]byte{make([]byte, c.l.Size)})
	if err != nil {
		return res, err
	}
	for i := range ch.Accesses {
		a := &ch.Accesses[i]
		switch {
		case a.Kind == AccessRead:
			a.Data = append(a.Data[:0], data[0]...)
		case a.Version != res.Version:
			err = ErrDiffers
		}
		a.Version = res.Version
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
	m := newChainRunner(ch, s, tries)
	res := Result{Form: m.form()}
	j, err := c.start(m, ch.Slot, len(m.records))
	if err != nil {
		return res, err
	}
	j.wrote = func() bool { return m.wrote }
	commit, err := j.run(wait, s)
	res.Tries, res.Version = m.tried, m.version
	if err != nil || commit == nil {
		return res, err
	}
	if err := commit.Wait(ctx); err != nil {
		if m.wrote && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
		return res, err
	}
	return res, nil
}
