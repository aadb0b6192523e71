package lockoffload

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/goverbs/goverbs/lockoffload/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// handshakePatience is how long a handshake may take.
const handshakePatience = 5 * time.Second

// accept accepts connections until the listener is closed. Each has a goroutine of its
// own, so that a silent one does not delay others.
func (l *Listener) accept() {
	for pause := time.Millisecond; ; {
		conn, err := l.tcp.Accept()
		switch {
		case l.over.Err() != nil || errors.Is(err, net.ErrClosed):
			if err == nil {
				conn.Close()
			}
			return
		case err != nil: // no descriptors left, perhaps
			l.note(err)
			time.Sleep(pause)
			pause = min(2*pause, time.Second)
			continue
		}
		l.note(nil)
		pause = time.Millisecond
		l.work.Go(func() { l.serve(conn) })
	}
}

func (l *Listener) serve(conn net.Conn) {
	if err := l.welcome(conn); err != nil && l.over.Err() == nil && !errors.Is(err, ErrStarting) {
		l.cfg.Logger.Warn("lockoffload: client not admitted", "from", conn.RemoteAddr(), "error", err)
	}
}

func (l *Listener) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = err
}

// welcome serves a connection. Nothing is made for a client that has not shown that it
// has the key.
func (l *Listener) welcome(conn net.Conn) error {
	defer conn.Close()
	defer context.AfterFunc(l.over, func() { conn.Close() })()
	leave := l.pending.Admit(conn.RemoteAddr(), func() { conn.Close() })
	c, h, err := l.challenge(conn)
	if crowded := leave(); crowded != nil {
		err = crowded
	}
	if err != nil {
		return err
	}
	reply := func(s wire.Status, body []byte) error {
		_, err := conn.Write(wire.AppendReply(nil, l.cfg.Key, c, h.Nonce, s, body))
		return err
	}
	refuse := func(err error) error {
		s := wire.Refused
		switch {
		case errors.Is(err, ErrFull):
			s = wire.Full
		case errors.Is(err, ErrStarting):
			s = wire.Wait
		}
		text := err.Error()
		return errors.Join(err, reply(s, []byte(text[:min(len(text), wire.MaxBody)])))
	}
	var remote verbs.Endpoint
	if err := remote.UnmarshalBinary(h.Body); err != nil {
		return refuse(err)
	}
	if h.Kind == wire.Agent {
		return l.welcomeCaller(conn, h.Client, remote, reply, refuse)
	}
	gid, err := gidFor(l.pd, l.cfg.GID, conn)
	if err != nil {
		return refuse(err)
	}
	s, err := l.srv.admit(nil, gid)
	if err != nil {
		return refuse(err)
	}
	local, err := s.Endpoint()
	if err == nil {
		err = s.Connect(remote)
	}
	if err != nil {
		return errors.Join(refuse(err), s.Close())
	}
	body, err := local.AppendBinary(nil)
	if err == nil {
		err = reply(wire.Welcome, body)
	}
	if err == nil {
		err = connected(conn)
	}
	if err != nil { // its place is not kept for the heartbeat that does not come
		return errors.Join(err, s.Close())
	}
	return nil
}

// challenge sends a challenge and returns the hello of a client that has the key.
func (l *Listener) challenge(conn net.Conn) (c wire.Challenge, h wire.Hello, err error) {
	if err := conn.SetDeadline(time.Now().Add(handshakePatience)); err != nil {
		return c, h, err
	}
	rand.Read(c[:])
	if _, err := conn.Write(c.Append(nil)); err != nil {
		return c, h, err
	}
	h, err = wire.ReadHello(conn, l.cfg.Key, c)
	if errors.Is(err, wire.ErrKey) {
		conn.Write([]byte{byte(wire.NoKey), 0, 0, 0, 0, 0, 0, 0}) // whatever its key is
	}
	return c, h, err
}

// connected waits for the client's message that it has connected its queue pair.
func connected(conn net.Conn) error {
	var last [1]byte
	if _, err := io.ReadFull(conn, last[:]); err != nil || last[0] != wire.Connected {
		return fmt.Errorf("client did not connect: %w", errors.Join(err, wire.ErrMalformed))
	}
	return nil
}

// agentConn is a client's connection to the agent, which lasts as long as its TCP
// connection.
type agentConn struct {
	conn  net.Conn
	agent *Agent
	qp    *verbs.QP
}

func (l *Listener) welcomeCaller(conn net.Conn, client uint64, remote verbs.Endpoint, reply func(wire.Status, []byte) error, refuse func(error) error) error {
	a, err := l.attach(conn, client)
	if err != nil {
		return refuse(err)
	}
	defer l.detach(client, a)
	local, err := a.qp.Endpoint()
	if err == nil {
		err = a.qp.Connect(remote, l.cfg.Connect)
	}
	if err != nil {
		return refuse(err)
	}
	local.Data = terms{a.agent.Limits(), target{l.cfg.Layout, l.region.incarnation}}.append(nil)
	body, err := local.AppendBinary(nil)
	if err == nil {
		err = reply(wire.Welcome, body)
	}
	if err == nil {
		err = connected(conn)
	}
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	if tcp, ok := overTCP(conn); ok {
		if err := tcp.SetKeepAliveConfig(agentKeepAlive); err != nil {
			return err
		}
	}
	_, _ = io.Copy(io.Discard, conn) // until it goes, however
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
	for pause := time.Millisecond; ; {
		l.mu.Lock()
		agent := l.agent
		l.mu.Unlock()
		select {
		case <-agent.over:
		case <-l.over.Done():
			return
		}
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return
		}
		if l.agent == agent {
			l.lame = l.renewAgent()
		}
		err := l.lame
		l.mu.Unlock()
		if err == nil {
			pause = time.Millisecond
			continue
		}
		l.cfg.Logger.Error("lockoffload: no agent in place of one that failed", "error", err)
		select {
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		case <-l.over.Done():
		}
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

// dialer connects to a target.
type dialer struct {
	pd      *verbs.PD
	address string
	cfg     DialConfig
}

// startingPause is the pause between attempts to get a place at a target that admits no
// clients yet.
const startingPause = 50 * time.Millisecond

// meet makes a queue pair and connects it to one of the target. It waits while the target
// admits no clients yet.
func (d *dialer) meet(ctx context.Context, kind wire.Kind, client uint64) (j joined, remote verbs.Endpoint, err error) {
	for starting := error(nil); ; starting = ErrStarting {
		j, remote, err = d.meetOnce(ctx, kind, client)
		if err != nil && ctx.Err() != nil {
			return j, remote, errors.Join(err, starting)
		}
		if !errors.Is(err, ErrStarting) {
			return j, remote, err
		}
		select {
		case <-time.After(startingPause):
		case <-ctx.Done():
			return j, remote, errors.Join(ctx.Err(), err)
		}
	}
}

func (d *dialer) meetOnce(ctx context.Context, kind wire.Kind, client uint64) (j joined, remote verbs.Endpoint, err error) {
	ctx, cancel := context.WithTimeout(ctx, handshakePatience)
	defer cancel()
	dial := d.cfg.Dialer
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	conn, err := dial(ctx, "tcp", d.address)
	if err != nil {
		return j, remote, err
	}
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	gid, err := gidFor(d.pd, d.cfg.GID, conn)
	if err == nil {
		j, err = newJoined(d.pd, gid)
	}
	j.conn = conn
	if err == nil {
		remote, err = d.greet(conn, j.qp, wire.Hello{Kind: kind, Client: client})
	}
	if err == nil {
		err = j.qp.Connect(remote, d.cfg.Connect)
	}
	if err != nil {
		return joined{}, remote, errors.Join(err, ctx.Err(), j.close())
	}
	return j, remote, nil
}

func (d *dialer) greet(conn net.Conn, qp *verbs.QP, h wire.Hello) (remote verbs.Endpoint, err error) {
	c, err := wire.ReadChallenge(conn)
	if err != nil {
		return remote, err
	}
	local, err := qp.Endpoint()
	if err != nil {
		return remote, err
	}
	if h.Body, err = local.AppendBinary(nil); err != nil {
		return remote, err
	}
	rand.Read(h.Nonce[:])
	if _, err := conn.Write(h.Append(nil, d.cfg.Key, c)); err != nil {
		return remote, err
	}
	status, body, err := wire.ReadReply(conn, d.cfg.Key, c, h.Nonce)
	switch {
	case errors.Is(err, wire.ErrKey):
		return remote, ErrKey
	case err != nil:
		return remote, err
	case status == wire.Full:
		return remote, ErrFull
	case status == wire.Wait:
		return remote, ErrStarting
	case status != wire.Welcome:
		return remote, fmt.Errorf("%w: %s", ErrRefused, body)
	}
	return remote, remote.UnmarshalBinary(body)
}
