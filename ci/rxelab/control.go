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
	if err := machine.Control.Send(m); err != nil {
		return m, fmt.Errorf("host %d: %w", host, errGone)
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
		go func() {
			reply := l.request(l.life, m.Host, msg)
			reply.ID, reply.Op = msg.ID, proto.OpDone
			m.Control.Send(reply)
		}()
	}
}

// request does what a program on host from asks for.
func (l *lab) request(ctx context.Context, from int, msg proto.Message) (reply proto.Message) {
	machine := l.machine(msg.Host)
	switch {
	case machine == nil:
		reply.Error = fmt.Sprintf("no host %d", msg.Host)
	case msg.Op == proto.OpKill && msg.Host == from:
		reply.Error = "a host cannot ask to be killed: it would not hear the answer"
	case msg.Op == proto.OpKill:
		l.kill(msg.Host)
	case msg.Op == proto.OpStart:
		select {
		case <-machine.Exited():
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
