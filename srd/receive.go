package srd

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/goverbs/goverbs/srd/internal/engine"
)

// Message is a message that arrived. Data belongs to the program until it is released.
// The program may reslice it.
type Message struct {
	From    Addr
	Service Service
	Data    []byte

	piece *piece // its memory
	num   uint32 // of the piece, while the message is not released
}

// Receive waits for at least one message, and takes as many as are there and fit into ms.
// [Endpoint.Release] gives their memory back. When too much of it is out, senders are
// first slowed down, and refused when none was given back for an eighth of
// [Config.PeerTimeout].
func (ep *Endpoint) Receive(ctx context.Context, ms []Message) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("srd: receive: %w", err)
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if len(ms) == 0 {
		return 0, nil
	}
	if err := ep.await(ctx, &ep.readers, ep.readable); err != nil {
		return 0, fmt.Errorf("srd: receive: %w", err)
	}
	for n < len(ms) && ep.inbox.n > 0 {
		ms[n] = ep.inbox.pop()
		n++
	}
	return n, nil
}

func (ep *Endpoint) readable() bool { return ep.inbox.n > 0 }

// Release gives the memory of messages back. Releasing a message again, or a copy of it, does
// nothing.
func (ep *Endpoint) Release(ms ...Message) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	lacked := ep.pool.lacks != 0
	for i := range ms {
		m := &ms[i]
		ep.pool.takeBack(m.piece, m.num)
		m.Data, m.piece = nil, nil
	}
	if lacked {
		ep.pump() // messages may wait for it
	}
}

// callBack hands the messages that arrived to the callback.
func (ep *Endpoint) callBack() {
	for {
		ep.mu.Lock()
		if ep.inbox.n == 0 || ep.closed.Load() {
			ep.mu.Unlock()
			return
		}
		m := ep.inbox.pop()
		ep.mu.Unlock()
		ep.callOnce(m)
	}
}

// callOnce hands a message to the callback, and releases it however the callback ends.
func (ep *Endpoint) callOnce(m Message) {
	defer ep.Release(m)
	defer func() {
		if p := recover(); p != nil {
			ep.logs.Error("srd: OnMessage panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	own := m
	ep.cfg.OnMessage(&own)
}

// host has the methods that the machine calls, with ep.mu held.
type host Endpoint

func (h *host) Room(size int) []byte { return h.pool.get(size) }
func (h *host) Soon(size int) bool   { return h.pool.soon(size, (*Endpoint)(h).now()) }

func (h *host) Deliver(d *engine.Delivery, owned bool) bool {
	ep := (*Endpoint)(h)
	data := d.Bytes
	if !owned {
		if data = ep.pool.get(len(d.Bytes)); data == nil {
			return false
		}
		copy(data, d.Bytes)
	}
	p := ep.pool.lend(data)
	ep.inbox.push(Message{From: addrOf(d.From), Service: Service(d.Service), Data: data, piece: p, num: p.num})
	if ep.cfg.OnMessage != nil {
		ep.polls.nudge()
	} else {
		ep.readers.wake(&ep.polls)
	}
	return true
}

func (h *host) Drop(b []byte)            { h.pool.put(b) }
func (h *host) Settled(r *engine.Result) { (*Endpoint)(h).settled(r) }
func (h *host) Pressure() uint8          { return h.pool.pressure() }
func (h *host) PartSettled(tag uint64, part int, s engine.Status) {
	r := h.requests.all[uint32(tag)]
	for len(r.packets) <= part {
		r.packets = append(r.packets, 0)
	}
	r.packets[part] = Status(s)
}
