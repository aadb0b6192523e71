package lockoffload

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/goverbs/goverbs/internal/backoff"
	"github.com/goverbs/goverbs/verbs"
)

// agentConn is a client's connection to the agent, which lasts as long as its TCP
// connection.
type agentConn struct {
	conn  net.Conn
	agent *Agent
	qp    *verbs.QP
}

// welcomeCaller connects a client to the agent until its TCP connection ends.
func (l *Listener) welcomeCaller(v *visit) error {
	a, err := l.attach(v.conn, v.hello.Client)
	if err != nil {
		return v.refuse(err)
	}
	defer l.detach(v.hello.Client, a)
	local, err := a.qp.Endpoint()
	if err == nil {
		err = a.qp.Connect(v.remote, l.cfg.Connect)
	}
	if err != nil {
		return v.refuse(err)
	}
	local.Data = terms{a.agent.Limits(), target{l.cfg.Layout, l.region.generation}}.append(nil)
	if err := v.finish(local); err != nil {
		return err
	}
	if err := v.conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	keepAlive(v.conn)
	_, _ = io.Copy(io.Discard, v.conn) // until it goes, however
	return nil
}

// attach gives a client a queue pair to the agent, a new one if that had failed.
func (l *Listener) attach(conn net.Conn, client uint64) (*agentConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, ErrClosed
	case l.agent == nil:
		return nil, fmt.Errorf("%w: there is no agent", verbs.ErrUnsupported)
	case l.agent.Err() != nil:
		if l.lame = l.renewAgent(); l.lame != nil {
			return nil, l.lame
		}
	}
	cfg, err := l.agent.QPConfig(), error(nil)
	if cfg.GID, err = gidFor(l.pd, cfg.GID, conn); err != nil {
		return nil, err
	}
	qp, err := l.pd.CreateQP(cfg)
	if err != nil {
		return nil, err
	}
	if err := l.agent.Attach(client, qp); err != nil {
		return nil, errors.Join(err, qp.Close())
	}
	a := &agentConn{conn: conn, agent: l.agent, qp: qp}
	if old := l.links[client]; old != nil {
		old.conn.Close()
	}
	l.links[client] = a
	return a, nil
}

// sweep replaces the agent when it fails, even if no client connects to it again: it may
// have left locks.
func (l *Listener) sweep() {
	for pauses := backoff.New(time.Millisecond, time.Second); ; {
		l.mu.Lock()
		agent := l.agent
		l.mu.Unlock()
		select {
		case <-agent.over:
		case <-l.over.Done():
			return
		}
		l.mu.Lock()
		if l.agent == agent && !l.closed {
			l.lame = l.renewAgent()
		}
		err := l.lame
		l.mu.Unlock()
		if err == nil {
			pauses.Reset()
			continue
		}
		l.cfg.Logger.Error("lockoffload: no agent in place of one that failed", "error", err)
		_ = pauses.Wait(l.over)
	}
}

// renewAgent replaces an agent that failed. mu must be held.
func (l *Listener) renewAgent() error {
	for _, a := range l.links {
		a.conn.Close()
		if err := a.qp.Close(); err != nil {
			return err
		}
	}
	if err := l.agent.Close(); err != nil {
		return err
	}
	agent, err := l.newAgent()
	if err == nil {
		l.agent = agent
	}
	return err
}

// detach ends a client's connection to the agent, and its place there unless the client
// has connected again.
func (l *Listener) detach(client uint64, a *agentConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.links[client] == a {
		a.agent.Forget(client)
		delete(l.links, client)
	}
	if err := a.qp.Close(); err != nil {
		l.cfg.Logger.Error("lockoffload: queue pair of an agent's client", "error", err)
	}
}
