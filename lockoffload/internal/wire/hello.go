// Package wire has the messages of package lockoffload: what a client and the target's
// agent SEND to each other ([ChainRequest], [ChainReply]), and what a client and a target
// say before there is a queue pair between them:
//
//	target: magic 4 | version 1 | 0 3 | challenge 32
//	client: kind 1 | 0 3 | length of the body 4 | client 8 | nonce 32 | body | HMAC 32
//	target: status 1 | 0 3 | length of the body 4 | body | HMAC 32
//	client: 1 byte, when its queue pair is connected
//
// The HMACs (SHA-256) are over a word for the direction, the challenge, the nonce and
// everything before them in the message, so that neither side's messages can be
// replayed. They keep nothing secret.
package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Sizes of parts, in bytes.
const (
	NonceSize = 32
	MaxBody   = 4096

	challengeSize = 8 + NonceSize
	helloHead     = 8 + 8 + NonceSize
	replyHead     = 8
)

// Challenge is the random number that a target sends first; Nonce is the client's.
type (
	Challenge [NonceSize]byte
	Nonce     [NonceSize]byte
)

// Kind is the kind of connection that a client asks for.
type Kind byte

// Kinds of connections: a place among the sessions, or a connection to the agent.
const (
	Session Kind = 'S'
	Agent   Kind = 'A'
)

// Status is the outcome in a target's reply.
type Status byte

// Outcomes of a handshake. NoKey alone comes without an HMAC that the client can check.
const (
	Welcome Status = 1
	Full    Status = 2
	Refused Status = 3
	NoKey   Status = 4
	Wait    Status = 5 // the target admits no clients yet
)

// Connected is the client's last byte.
const Connected = 'c'

// Errors of this package.
var (
	ErrMalformed = errors.New("malformed message")
	ErrKey       = errors.New("wrong key")
)

const magic = "GVLH"

// Append appends the target's first message.
func (c *Challenge) Append(b []byte) []byte {
	return append(append(b, magic+"\x01\x00\x00\x00"...), c[:]...)
}

// ReadChallenge reads the target's first message.
func ReadChallenge(r io.Reader) (c Challenge, err error) {
	var b [challengeSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return c, err
	}
	if string(b[:8]) != magic+"\x01\x00\x00\x00" {
		return c, fmt.Errorf("%w: no target of this version", ErrMalformed)
	}
	return Challenge(b[8:]), nil
}

// Hello is a client's first message.
type Hello struct {
	Kind   Kind
	Client uint64
	Nonce  Nonce
	Body   []byte
}

// Append appends the hello, in response to a challenge.
func (h *Hello) Append(b, key []byte, c Challenge) []byte {
	start := len(b)
	b = append(b, byte(h.Kind), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(h.Body)))
	b = binary.BigEndian.AppendUint64(b, h.Client)
	b = append(append(b, h.Nonce[:]...), h.Body...)
	return append(b, sum(key, "hello", c, h.Nonce, b[start:])...)
}

// ReadHello reads a hello. It returns ErrKey for one that was not made with the key.
func ReadHello(r io.Reader, key []byte, c Challenge) (h Hello, err error) {
	var head [helloHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return h, err
	}
	h.Kind, h.Client, h.Nonce = Kind(head[0]), binary.BigEndian.Uint64(head[8:]), Nonce(head[16:])
	h.Body, err = readRest(r, key, "hello", c, h.Nonce, head[:])
	if err == nil && h.Kind != Session && h.Kind != Agent {
		err = fmt.Errorf("%w: of kind %d", ErrMalformed, h.Kind)
	}
	return h, err
}

// AppendReply appends the target's reply.
func AppendReply(b, key []byte, c Challenge, n Nonce, s Status, body []byte) []byte {
	start := len(b)
	b = append(b, byte(s), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	b = append(b, body...)
	return append(b, sum(key, "reply", c, n, b[start:])...)
}

// ReadReply reads the target's reply.
func ReadReply(r io.Reader, key []byte, c Challenge, n Nonce) (s Status, body []byte, err error) {
	var head [replyHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return s, nil, err
	}
	s = Status(head[0])
	if s == NoKey {
		return s, nil, ErrKey
	}
	if body, err = readRest(r, key, "reply", c, n, head[:]); err == nil && (s < Welcome || s > Refused) && s != Wait {
		err = fmt.Errorf("%w: status %d", ErrMalformed, s)
	}
	return s, body, err
}

// readRest reads body and HMAC behind a head, and checks them.
func readRest(r io.Reader, key []byte, direction string, c Challenge, n Nonce, head []byte) ([]byte, error) {
	length := binary.BigEndian.Uint32(head[4:])
	if length > MaxBody || head[1]|head[2]|head[3] != 0 {
		return nil, fmt.Errorf("%w: body of %d bytes", ErrMalformed, length)
	}
	rest := make([]byte, length+sha256.Size)
	if _, err := io.ReadFull(r, rest); err != nil {
		return nil, err
	}
	body, got := rest[:length], rest[length:]
	if !hmac.Equal(got, sum(key, direction, c, n, head, body)) { // in constant time
		return nil, ErrKey
	}
	return body, nil
}

func sum(key []byte, direction string, c Challenge, n Nonce, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	io.WriteString(h, direction)
	h.Write(c[:])
	h.Write(n[:])
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}
