// Package greet is the handshake of the cache's client and server, before anything else. The client
// says which tenant it belongs to and what it wants, and proves that it has the tenant's key. The
// server proves the same, so that no other server can take its place. The package has no I/O.
//
//	client                                       server
//	hello: transport, tenant, nonce ───────────▶
//	         ◀──────────────── challenge: nonce, or that no proof is needed
//	proof: HMAC of both with the key ──────────▶
//	         ◀──────────────── verdict, and the same with another label
//
// Before the last answer there may be others that say to wait until it is the client's turn to
// connect. All messages have fixed lengths: an unauthenticated peer cannot make the other side
// allocate anything. The key does not cross the wire. What each side says next of its queue pairs has
// a [Seal]; what comes afterwards is neither encrypted nor signed.
package greet

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// Lengths in bytes.
const (
	HelloSize     = 104
	ChallengeSize = AnswerSize
	ProofSize     = sha256.Size
	VerdictSize   = AnswerSize
	AnswerSize    = 40 // of the server

	MaxName = 64 // of a tenant
	MinKey  = 16 // a shorter one could be guessed
)

const (
	magic     = 0xca4eb003 // the last digits are the version
	nonceSize = 32
	nonceAt   = 8
	nameAt    = nonceAt + nonceSize
)

// Transport is what is to follow on the connection.
type Transport uint8

const (
	RDMA Transport = iota + 1 // the exchange of a link
	TCP                       // messages
	DC                        // messages, the first of which is of a target to READ through
	transports
)

var (
	// ErrMalformed: the peer speaks something else, or another version.
	ErrMalformed = errors.New("what the peer says is not the cache's, or of another version")
	// ErrDenied: the server does not know the tenant, or the key is another one.
	ErrDenied = errors.New("the server does not admit this tenant with this key")
	// ErrKeyWanted: the server wants a proof, and the client has no key.
	ErrKeyWanted = errors.New("the server wants a tenant's key")
	// ErrStranger: the server has not proved that it has the key.
	ErrStranger = errors.New("the server has not proved that it has the tenant's key")
	// ErrFull: the tenant has as many clients as it may have.
	ErrFull = errors.New("the tenant has as many clients as it may have")
)

// status is a server's answer.
type status uint8

const (
	come   status = iota + 1 // in a challenge: no proof is wanted
	prove                    // in a challenge
	denied                   // in a verdict
	full                     // in a verdict
	later                    // in place of the last answer: another one follows
	statuses
)

// Hello is a client's first message.
type Hello struct {
	Transport Transport
	Tenant    string // at most [MaxName] bytes
	Nonce     [nonceSize]byte
}

// ReadHello decodes a hello of [HelloSize] bytes.
func ReadHello(b []byte) (h Hello, err error) {
	if len(b) != HelloSize || binary.LittleEndian.Uint32(b) != magic || binary.LittleEndian.Uint16(b[6:]) != 0 {
		return h, ErrMalformed
	}
	n := int(b[5])
	h.Transport = Transport(b[4])
	if h.Transport == 0 || h.Transport >= transports || n > MaxName || len(bytes.Trim(b[nameAt+n:], "\x00")) > 0 {
		return Hello{}, ErrMalformed
	}
	h.Tenant = string(b[nameAt : nameAt+n])
	copy(h.Nonce[:], b[nonceAt:])
	return h, nil
}

func (h *Hello) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, magic)
	b = append(b, byte(h.Transport), byte(len(h.Tenant)), 0, 0)
	b = append(append(b, h.Nonce[:]...), h.Tenant...)
	return append(b, make([]byte, MaxName-len(h.Tenant))...)
}

func answer(s status, body []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, magic)
	return append(append(b, byte(s), 0, 0, 0), body...)
}

func readAnswer(b []byte, size int) (status, []byte, error) {
	if len(b) != size || binary.LittleEndian.Uint32(b) != magic || b[4] == 0 || status(b[4]) >= statuses || b[5]|b[6]|b[7] != 0 {
		return 0, nil, ErrMalformed
	}
	return status(b[4]), b[nonceAt:], nil
}

// Later returns an answer that tells the client to wait for another one.
func Later() []byte { return answer(later, make([]byte, AnswerSize-nonceAt)) }

// IsLater reports whether an answer says to wait.
func IsLater(b []byte) bool {
	s, _, err := readAnswer(b, AnswerSize)
	return err == nil && s == later
}

// What each side signs begins with a label of its own: no side's proof is the other's.
const (
	byClient = "goverbs cache: client"
	byServer = "goverbs cache: server"
)

// sign returns a proof that its maker has the key, good for these two messages only.
func sign(key []byte, label string, hello, challenge []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(label))
	m.Write(hello)
	m.Write(challenge)
	return m.Sum(nil)
}

func nonce() (n [nonceSize]byte) {
	_, _ = rand.Read(n[:]) // never fails
	return n
}
