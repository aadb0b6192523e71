package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// After the addresses, the peers say three things to each other over TCP: that
// they are ready, that they are done, and why they stopped.
type word byte

const (
	wordReady word = iota + 1
	wordDone
	wordFailed
)

// message is such a word: "RB", the word, the length of text, count in 8 bytes
// big endian, text.
type message struct {
	word  word
	count uint64 // done: messages sent, or received
	text  string // failed: the reason
}

const (
	messageHeader = 12
	maxText       = 255
)

func (m message) bytes() []byte {
	text := m.text[:min(len(m.text), maxText)]
	b := append(make([]byte, 0, messageHeader+len(text)), 'R', 'B', byte(m.word), byte(len(text)))
	return append(binary.BigEndian.AppendUint64(b, m.count), text...)
}

func readMessage(r io.Reader) (message, error) {
	var b [messageHeader + maxText]byte
	if _, err := io.ReadFull(r, b[:messageHeader]); err != nil {
		return message{}, err
	}
	m := message{word: word(b[2]), count: binary.BigEndian.Uint64(b[4:])}
	if b[0] != 'R' || b[1] != 'B' || m.word < wordReady || m.word > wordFailed {
		return message{}, fmt.Errorf("malformed message %q", b[:messageHeader])
	}
	text := b[messageHeader : messageHeader+int(b[3])]
	if _, err := io.ReadFull(r, text); err != nil {
		return message{}, err
	}
	m.text = string(text)
	return m, nil
}

var (
	errPeerDone = errors.New("the peer is done")
	errPeerGone = errors.New("the peer is gone")
	errStalled  = errors.New("nothing has arrived for 10 s: messages were lost, or the peer hangs")
)

// control is the TCP connection to the peer.
type control struct {
	conn net.Conn
	last chan message // what the peer says last in a test
}

// say does not wait for a peer that does not read.
func (c *control) say(m message) error {
	c.conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	defer c.conn.SetWriteDeadline(time.Time{})
	if _, err := c.conn.Write(m.bytes()); err != nil {
		return fmt.Errorf("%w: %w", errPeerGone, err)
	}
	return nil
}

// hear reads the peer's next word; ctx ends it.
func (c *control) hear(ctx context.Context) (message, error) {
	stop := context.AfterFunc(ctx, func() { c.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer func() {
		if stop() {
			c.conn.SetReadDeadline(time.Time{})
		}
	}()
	m, err := readMessage(c.conn)
	switch {
	case ctx.Err() != nil:
		return m, context.Cause(ctx)
	case errors.Is(err, io.EOF):
		return m, errPeerGone
	case err != nil:
		return m, fmt.Errorf("%w: %w", errPeerGone, err)
	case m.word == wordFailed:
		return m, fmt.Errorf("the peer stopped: %s", m.text)
	}
	return m, nil
}

// meet waits until the peer is as far.
func (c *control) meet(ctx context.Context) error {
	if err := c.say(message{word: wordReady}); err != nil {
		return err
	}
	m, err := c.hear(ctx)
	if err == nil && m.word != wordReady {
		err = errors.New("the peer is out of step")
	}
	return err
}

// watch listens for the peer's last word while the test runs. Whatever it is,
// nothing more comes from there: it ends the test that cancel belongs to.
func (c *control) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	c.last = make(chan message, 1)
	go func() {
		defer close(c.last)
		m, err := c.hear(ctx)
		if err == nil && m.word != wordDone {
			err = errors.New("the peer is out of step")
		}
		if err != nil {
			cancel(err)
			return
		}
		c.last <- m
		cancel(errPeerDone)
	}()
}

// peerDone waits for the peer's last word and returns the number of messages that it
// counted. ctx is the one that watch cancels.
func (c *control) peerDone(ctx context.Context) (uint64, error) {
	m, ok := <-c.last
	if !ok {
		return 0, context.Cause(ctx)
	}
	return m.count, nil
}

func listen(ctx context.Context, o *options) (net.Listener, error) {
	host := ""
	if o.bind.IsValid() {
		host = o.bind.String()
	}
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(o.tcpPort)))
}

func accept(ctx context.Context, ln net.Listener) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	conn, err := ln.Accept()
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return conn, err
}

// dialTimeout allows for a server that is started at the same time.
const dialTimeout = 10 * time.Second

func dial(ctx context.Context, o *options) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	d := net.Dialer{}
	if o.bind.IsValid() {
		d.LocalAddr = &net.TCPAddr{IP: o.bind.AsSlice(), Zone: o.bind.Zone()}
	}
	addr := net.JoinHostPort(o.server, strconv.Itoa(o.tcpPort))
	for {
		conn, err := d.DialContext(ctx, "tcp", addr)
		var dns *net.DNSError
		if err == nil || errors.As(err, &dns) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
