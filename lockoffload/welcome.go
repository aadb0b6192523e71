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

// handshakeTimeout is how long a handshake may take.
const handshakeTimeout = 5 * time.Second

// accept accepts connections until the listener is closed. Each has a goroutine of its
// own, so that a silent one does not delay others.
func (l *Listener) accept() {
	for {
		conn, err := l.accepting.Next(l.over.Done())
		if err != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			if !l.closed {
				l.failed = err
				l.cfg.Logger.Error("lockoffload: target accepts no more clients", "error", err)
			}
			return
		}
		l.work.Go(func() { l.serve(conn) })
	}
}

func (l *Listener) serve(conn net.Conn) {
	if err := l.welcome(conn); err != nil && l.over.Err() == nil && !errors.Is(err, ErrStarting) {
		l.cfg.Logger.Warn("lockoffload: client not admitted", "from", conn.RemoteAddr(), "error", err)
	}
}

// welcome serves a connection. Nothing is made for a client that has not shown that it
// has the key.
func (l *Listener) welcome(conn net.Conn) error {
	defer conn.Close()
	defer context.AfterFunc(l.over, func() { conn.Close() })()
	leave := l.pending.Admit(conn.RemoteAddr(), func() { conn.Close() })
	v := &visit{conn: conn, key: l.cfg.Key}
	err := v.prove()
	if crowded := leave(); crowded != nil {
		err = crowded
	}
	if err != nil {
		return err
	}
	if err := v.remote.UnmarshalBinary(v.hello.Body); err != nil {
		return v.refuse(err)
	}
	if v.hello.Kind == wire.Agent {
		return l.welcomeCaller(v)
	}
	return l.welcomeClient(v)
}

// welcomeClient gives a client a place among the sessions.
func (l *Listener) welcomeClient(v *visit) error {
	gid, err := gidFor(l.pd, l.cfg.GID, v.conn)
	if err != nil {
		return v.refuse(err)
	}
	s, err := l.srv.admit(nil, gid)
	if err != nil {
		return v.refuse(err)
	}
	local, err := s.Endpoint()
	if err == nil {
		err = s.Connect(v.remote)
	}
	if err != nil {
		err = v.refuse(err)
	} else {
		err = v.finish(local)
	}
	if err != nil { // its place is not kept for the heartbeat that does not come
		return errors.Join(err, s.Close())
	}
	return nil
}

// visit is the handshake with a client.
type visit struct {
	conn      net.Conn
	key       []byte
	challenge wire.Challenge
	hello     wire.Hello
	remote    verbs.Endpoint
}

// prove sends a challenge and takes the hello of a client that has the key.
func (v *visit) prove() error {
	if err := v.conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	rand.Read(v.challenge[:])
	if _, err := v.conn.Write(v.challenge.Append(nil)); err != nil {
		return err
	}
	var err error
	v.hello, err = wire.ReadHello(v.conn, v.key, v.challenge)
	if errors.Is(err, wire.ErrKey) {
		v.conn.Write([]byte{byte(wire.NoKey), 0, 0, 0, 0, 0, 0, 0}) // whatever its key is
	}
	return err
}

func (v *visit) reply(s wire.Status, body []byte) error {
	_, err := v.conn.Write(wire.AppendReply(nil, v.key, v.challenge, v.hello.Nonce, s, body))
	return err
}

// refuse sends the client the reason why it is not admitted, and returns it.
func (v *visit) refuse(err error) error {
	s := wire.Refused
	switch {
	case errors.Is(err, ErrFull):
		s = wire.Full
	case errors.Is(err, ErrStarting):
		s = wire.Wait
	}
	text := err.Error()
	return errors.Join(err, v.reply(s, []byte(text[:min(len(text), wire.MaxBody)])))
}

// finish sends the client the endpoint of its queue pair here, and waits for the message
// that it has connected its own.
func (v *visit) finish(local verbs.Endpoint) error {
	body, err := local.AppendBinary(nil)
	if err == nil {
		err = v.reply(wire.Welcome, body)
	}
	if err != nil {
		return err
	}
	var last [1]byte
	if _, err := io.ReadFull(v.conn, last[:]); err != nil || last[0] != wire.Connected {
		return fmt.Errorf("client did not connect: %w", errors.Join(err, wire.ErrMalformed))
	}
	return nil
}
