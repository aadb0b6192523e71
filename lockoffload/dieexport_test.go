package lockoffload

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// DyingForms are the operations that DieAfter knows.
var DyingForms = []string{"update", "exclusive", "fair", "shared", "read", "read chain", "held read", "swap"}

// DieAfter carries an operation on record 0 of a slot out up to the n-th
// request of its lists and does nothing more about it: so far a client comes
// whose host dies there. With half, that request is a WRITE of which only the
// first half arrives. It tells whether there is such a request, and whether what
// was carried out changes the record, or the slot's private copy, to one more.
func (c *Client) DieAfter(ctx context.Context, form string, slot, n int, half bool) (died, changed bool, err error) {
	s := c.session()
	for _, next := range c.machines(s, form, slot) {
		m := next()
		j, err := c.start(m, slot)
		if err != nil {
			return false, changed, err
		}
		defer j.drop()
		for ended := false; !ended; {
			v, err := m.step()
			if err != nil {
				return false, changed, err
			}
			if v == sleep {
				return false, changed, fmt.Errorf("slot %d is not free", slot)
			}
			ended = v != post
			if v == done {
				break
			}
			ops := slices.Clone(m.base().ops)
			if died = n <= len(ops); died {
				ops = ops[:n]
				if last := &ops[n-1]; half && last.kind == opWrite {
					last.n /= 2
				} else if half {
					return false, changed, nil
				}
			}
			n -= len(ops)
			f, err := s.line.issue(ctx, ops, j.mr)
			if err == nil {
				err = s.line.await(ctx, f)
			}
			if err != nil {
				return false, changed, err
			}
			for i, o := range ops {
				written := form != "swap" && o.kind == opWrite && !(died && half && i == len(ops)-1)
				moved := form == "swap" && o.kind == opCmpSwap
				changed = changed || written || moved
			}
			if died {
				return true, changed, nil
			}
		}
	}
	return false, changed, nil
}

// machines are those of an operation, one after the other.
func (c *Client) machines(s *session, form string, slot int) []func() machine {
	var g grant
	plusOne := func(old []byte) []byte {
		n := uint64(1)
		if len(old) >= 8 {
			n += binary.LittleEndian.Uint64(old)
		}
		b := bytes.Repeat([]byte{0x55}, c.l.Size) // all of it, so that half is less
		binary.LittleEndian.PutUint64(b, n)
		return b
	}
	var old memory.Current
	release := func() machine { return &releaser{grant: g, owner: s.tags.Owner} }
	load := func() machine {
		return &loader{slot: slot, deliver: func(cur memory.Current) error { old = cloneOf(&cur); return nil }}
	}
	write := func() machine {
		return &stager{releaser: releaser{grant: g, owner: s.tags.Owner, allowed: s.allowed}, from: &old, data: plusOne}
	}
	chain := acquire{tags: &s.tags, data: true, grant: grant{slot: slot}}
	read := func(f Form) func() machine {
		return func() machine {
			m := &reader{acquire: chain, records: first, form: f}
			m.reading, m.deliver = true, func(int, memory.Content) error { return nil }
			return m
		}
	}
	switch form {
	case "update":
		return []func() machine{func() machine {
			return &updater{acquire: chain, records: first, allowed: s.allowed, change: func(old [][]byte) ([][]byte, error) { return [][]byte{plusOne(old[0])}, nil }}
		}}
	case "exclusive", "fair":
		m := &acquire{tags: &s.tags, token: true, grant: grant{slot: slot}}
		if form == "fair" {
			m.queue = new(queue)
		}
		return []func() machine{func() machine { return m }, func() machine { g = m.grant; return load() }, write}
	case "shared":
		m := &acquireShared{tags: &s.tags, grant: grant{slot: slot}}
		return []func() machine{func() machine { return m }, func() machine { g = m.grant; return load() }, release}
	case "read":
		return []func() machine{read(FormRead)}
	case "read chain":
		return []func() machine{read(FormReadChain)}
	case "held read":
		return []func() machine{read(FormReadHeld)}
	case "swap":
		return []func() machine{func() machine {
			return &swapWriter{swapLook: swapLook{slot: slot}, owner: s.tags.Owner, data: plusOne(nil)}
		}}
	}
	panic("no form " + form)
}

// stager is a releaser that stages its change of record 0 itself.
type stager struct {
	releaser
	from *memory.Current
	data func(old []byte) []byte
}

func (m *stager) step() (verdict, error) {
	r, err := m.l.Record(m.from, 0)
	if err != nil {
		return done, err
	}
	m.old = m.from
	m.l.Stage(m.next(), m.from)
	m.l.Put(m.next(), 0, r.Version+1, m.data(r.Data))
	return m.releaser.step()
}

func cloneOf(c *memory.Current) memory.Current {
	d := *c
	d.Body = bytes.Clone(c.Body)
	return d
}

// Heartbeat is the last one that was posted.
func (c *Client) Heartbeat() uint64 {
	return binary.LittleEndian.Uint64(c.session().beat.Bytes())
}

// PostTooMuch posts a list that the queue pair has no room for.
func (c *Client) PostTooMuch() error {
	s := c.session()
	ops := slices.Repeat([]op{{kind: opWrite, n: 8}}, s.line.qp.MaxSendWR()+1)
	_, err := s.line.issue(context.Background(), ops, s.beat)
	return err
}
