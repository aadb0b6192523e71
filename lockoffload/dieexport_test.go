package lockoffload

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/lockoffload/internal/memory"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// DyingForms are the operations that DieAfter knows.
var DyingForms = []string{"update", "exclusive", "handed on", "commit", "shared", "read", "read chain", "held read", "swap"}

// DieAfter carries out an operation on record 0 of a slot up to the n-th
// request of its lists and then abandons it, like a client on a host that dies
// there. With half, that request is a WRITE of which only the first half
// arrives. It reports whether there is such a request, and whether the requests
// carried out change the record, or the slot's private copy, to one more.
func (c *Client) DieAfter(ctx context.Context, form string, slot, n int, half bool) (died, changed bool, err error) {
	s := c.session()
	machines, err := c.machines(ctx, s, form, slot)
	if err != nil {
		return false, false, err
	}
	for _, next := range machines {
		m := next()
		j, err := c.start(s, m, slot)
		if err != nil {
			return false, changed, err
		}
		defer j.drop()
		for ended := false; !ended; {
			v, err := m.Step()
			if err != nil {
				return false, changed, err
			}
			if v == machine.Sleep {
				return false, changed, fmt.Errorf("slot %d is not free", slot)
			}
			ended = v != machine.Post
			if v == machine.Done {
				break
			}
			ops := slices.Clone(m.Base().Ops)
			if died = n <= len(ops); died {
				ops = ops[:n]
				if last := &ops[n-1]; half && last.Kind == machine.OpWrite {
					last.N /= 2
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
				written := form != "swap" && o.Kind == machine.OpWrite && !(died && half && i == len(ops)-1)
				moved := form == "swap" && o.Kind == machine.OpCmpSwap
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
func (c *Client) machines(ctx context.Context, s *session, what string, slot int) ([]func() machine.Machine, error) {
	var g machine.Grant
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
	release := func() machine.Machine { return &machine.Releaser{Grant: g, Owner: s.tags.Owner} }
	load := func() machine.Machine {
		return &loader{slot: slot, to: &old}
	}
	write := func() machine.Machine {
		return &stager{Releaser: machine.Releaser{Grant: g, Owner: s.tags.Owner}, from: &old, data: plusOne}
	}
	chain := machine.Acquire{Tags: &s.tags, Data: true, Grant: machine.Grant{Slot: slot}}
	read := func(f Protocol) func() machine.Machine {
		return func() machine.Machine {
			m := &machine.Reader{Acquire: chain, Accesses: []machine.Access{{Kind: wire.AccessRead}}, Protocol: machine.Protocol(f)}
			m.Reading = true
			return m
		}
	}
	switch what {
	case "update":
		return []func() machine.Machine{func() machine.Machine {
			return &updater{machine.Chain{Acquire: chain, Accesses: []machine.Access{{Kind: wire.AccessRead}, {Kind: wire.AccessWrite}}}, plusOne}
		}}, nil
	case "exclusive", "handed on", "commit":
		m := &machine.Acquire{Tags: &s.tags, Token: true, Grant: machine.Grant{Slot: slot}}
		list := []func() machine.Machine{func() machine.Machine { return m }, func() machine.Machine { g = m.Grant; return load() }, write}
		switch what {
		case "handed on":
			t, err := c.agent.turn(ctx, s.lost, slot)
			if err != nil {
				return nil, err
			}
			m.From, m.Data = t.word, true
		case "commit":
			list = append(list[:2], func() machine.Machine {
				return &committer{slot: slot, old: &old, data: plusOne}
			}, release)
		}
		return list, nil
	case "shared":
		m := &machine.AcquireShared{Acquire: machine.Acquire{Tags: &s.tags, Grant: machine.Grant{Slot: slot}}}
		return []func() machine.Machine{func() machine.Machine { return m }, func() machine.Machine { g = m.Grant; return load() }, release}, nil
	case "read":
		return []func() machine.Machine{read(ProtocolRead)}, nil
	case "read chain":
		return []func() machine.Machine{read(ProtocolReadChain)}, nil
	case "held read":
		return []func() machine.Machine{read(ProtocolReadLocked)}, nil
	case "swap":
		return []func() machine.Machine{func() machine.Machine {
			return &machine.SwapWriter{SwapLook: machine.SwapLook{Slot: slot}, Owner: s.tags.Owner, Data: plusOne(nil)}
		}}, nil
	}
	panic("no form " + what)
}

// stager is a releaser that stages its change of record 0 itself.
type stager struct {
	machine.Releaser
	from *memory.Current
	data func(old []byte) []byte
}

func (m *stager) Step() (machine.Verdict, error) {
	m.Old = m.from
	if err := stage(&m.Work, m.from, m.data); err != nil {
		return machine.Done, err
	}
	return m.Releaser.Step()
}

// updater is a chain that changes record 0.
type updater struct {
	machine.Chain
	data func(old []byte) []byte
}

func (m *updater) Step() (machine.Verdict, error) {
	v, err := m.Acquire.Step()
	if v != machine.Done || err != nil {
		return v, err
	}
	if err = m.Look(); err == nil {
		m.View()
		m.Accesses[1].Data = m.data(m.Accesses[0].Data)
	}
	return machine.Last, m.End(err)
}

// loader reads a slot under its lock.
type loader struct {
	machine.Once
	slot int
	to   *memory.Current
	made bool
}

func (m *loader) Step() (machine.Verdict, error) {
	if !m.made {
		m.made = true
		m.Load(m.slot)
	}
	v, err := m.Once.Step()
	if v == machine.Done {
		var cur memory.Current
		cur, err = m.Decode()
		*m.to = cloneOf(&cur)
	}
	return v, err
}

// committer changes record 0 under a lock, and keeps that.
type committer struct {
	machine.Once
	slot int
	old  *memory.Current
	data func(old []byte) []byte
	made bool
}

func (m *committer) Step() (machine.Verdict, error) {
	if !m.made {
		m.made = true
		if err := stage(&m.Work, m.old, m.data); err != nil {
			return machine.Done, err
		}
		m.Commit(m.slot, m.old)
	}
	return m.Once.Step()
}

func stage(w *machine.Work, from *memory.Current, data func(old []byte) []byte) error {
	r, err := w.L.Record(from, 0)
	if err == nil {
		w.L.Stage(w.Next(), from)
		w.L.Put(w.Next(), 0, r.Version+1, data(r.Data))
	}
	return err
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
	ops := slices.Repeat([]machine.Op{{Kind: machine.OpWrite, N: 8}}, s.line.qp.MaxSendWR()+1)
	_, err := s.line.issue(context.Background(), ops, s.beat)
	return err
}

// BeforeGoodbye has a client do something when it is about to tell the target that it goes.
func (c *Client) BeforeGoodbye(f func()) {
	s := c.session()
	stop := s.stop
	s.stop = func() { f(); stop() }
}
