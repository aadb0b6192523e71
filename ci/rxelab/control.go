package main

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/ci/internal/proto"
	"github.com/goverbs/goverbs/ci/internal/vm"
)

// ask sends a request to a guest and waits for its reply.
func (l *lab) ask(ctx context.Context, host int, m proto.Message) (proto.Message, error) {
	machine := l.machine(host)
	if machine == nil {
		return m, fmt.Errorf("no host %d", host)
	}
	ch := make(chan proto.Message, 1)
	l.mu.Lock()
	l.lastID++
	m.ID = l.lastID
	l.waiting[m.ID] = ch
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.waiting, m.ID)
		l.mu.Unlock()
	}()
	sent := make(chan error, 1)
	go func() { sent <- machine.Control.Send(m) }() // waits while the guest does not read
	select {
	case err := <-sent:
		if err != nil {
			return m, fmt.Errorf("host %d: %w", host, errGone)
		}
	case <-machine.Exited():
	case <-ctx.Done():
	}
	select {
	case r := <-ch:
		return r, nil
	case <-machine.Exited():
		return m, fmt.Errorf("host %d: %w", host, errGone)
	case <-ctx.Done():
		return m, ctx.Err()
	}
}

// serve takes what a guest says: replies to ask, and requests of its programs.
func (l *lab) serve(m *vm.Machine) {
	for {
		msg, err := m.Control.Receive()
		if err != nil {
			return
		}
		if msg.Op == proto.OpDone {
			l.mu.Lock()
			ch := l.waiting[msg.ID]
			delete(l.waiting, msg.ID)
			l.mu.Unlock()
			if ch != nil {
				ch <- msg
			}
			continue
		}
		l.mu.Lock()
		if !l.stopping {
			l.requests.Go(func() {
				reply := l.request(l.life, m.Host, msg)
				reply.ID, reply.Op = msg.ID, proto.OpDone
				go m.Control.Send(reply) // the guest need not read it
			})
		}
		l.mu.Unlock()
	}
}

// request does what a program on host from asks for.
func (l *lab) request(ctx context.Context, from int, msg proto.Message) (reply proto.Message) {
	if l.machine(msg.Host) == nil {
		reply.Error = fmt.Sprintf("no host %d", msg.Host)
		return reply
	}
	if msg.Op == proto.OpKill || msg.Op == proto.OpStart {
		// One after the other: two starts would boot two machines with one name,
		// and a host that is killed while it starts would live.
		turn := l.hosts[msg.Host].turn
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			reply.Error = ctx.Err().Error()
			return reply
		}
	}
	switch {
	case msg.Op == proto.OpKill && msg.Host == from:
		reply.Error = "a host cannot ask to be killed: it would not hear the answer"
	case msg.Op == proto.OpKill:
		l.kill(msg.Host)
	case msg.Op == proto.OpStart:
		select {
		case <-l.machine(msg.Host).Exited():
			err := l.start(ctx, msg.Host)
			if err == nil {
				err = l.prove(ctx, msg.Host, from)
			}
			if err != nil {
				reply.Error = err.Error()
			}
		default:
			reply.Error = fmt.Sprintf("host %d is running", msg.Host)
		}
	case msg.Op == proto.OpExec:
		msg.Main, msg.TTY = false, false
		msg.Env = append(proto.Bytes(l.environ(msg.Host)), msg.Env...)
		r, err := l.ask(ctx, msg.Host, msg)
		if err != nil {
			r = proto.Message{Error: err.Error()}
		}
		reply = r
	default:
		reply.Error = fmt.Sprintf("no operation %q", msg.Op)
	}
	return reply
}
