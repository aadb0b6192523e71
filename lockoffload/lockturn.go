package lockoffload

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
)

// maxReadAhead is how many bytes of a slot are read together with the lock command. Others
// wait meanwhile, so holders should not need one round trip more for what is small.
const maxReadAhead = 4096

// fairAgent returns the target's agent, which alone serves fair locks and chains. If the
// client has lost it, the error is one that [Client.Retry] retries.
func (c *Client) fairAgent() (*Caller, error) {
	c.mu.Lock()
	agent := c.agent
	c.mu.Unlock()
	switch {
	case agent != nil && !agent.gone():
		return agent, nil
	case c.regainAgent():
		return nil, fmt.Errorf("%w: %w", ErrNoAgent, ErrBroken)
	}
	return nil, ErrNoAgent
}

// acquireTurn takes a lock when the agent gives this client its turn. The agent has then
// reserved the lock word for this client alone; a client that is too slow asks again.
func (c *Client) acquireTurn(ctx context.Context, s *session, slot, tries int, token bool) (*Lock, Result, error) {
	res := Result{Protocol: ProtocolTwoStep}
	agent, err := c.fairAgent()
	if err != nil {
		return nil, res, err
	}
	for {
		t, err := agent.turn(ctx, s.lost, slot)
		if err != nil {
			if gone := s.allowed(); gone != nil {
				return nil, res, gone
			}
			if ctx.Err() != nil {
				return nil, res, fmt.Errorf("%w: %w", ErrNotAcquired, ctx.Err())
			}
			return nil, res, err
		}
		m := &machine.Acquire{Tags: &s.tags, Token: token, Grant: machine.Grant{Slot: slot}, From: t.word}
		m.Data = c.l.PairSize() <= maxReadAhead
		if tries > 0 {
			m.Tries = max(1, tries-res.Tries)
		}
		j, err := c.takeLock(ctx, s, m)
		res.Tries += m.Tried
		if err == nil {
			h := &Lock{c: c, s: s, g: m.Grant, j: j, turn: t}
			if m.Data {
				if cur, err := m.Decode(); err == nil { // else Read returns the error
					h.keep(cur)
				}
			}
			return c.hold(h, res)
		}
		t.end()
		switch {
		case !errors.Is(err, machine.ErrTurnOver):
			return nil, res, err
		case tries > 0 && res.Tries >= tries:
			return nil, res, ErrNotAcquired
		}
	}
}
