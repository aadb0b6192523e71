// Package greet is the handshake of the cache's client and server, before anything else. The client
// says which tenant it belongs to, what it wants and which server it takes the other side for, and
// proves that it has the tenant's key. The server proves the same, so that no other server can take its
// place. The package has no I/O.
//
//	client                                                server
//	hello: transport, tenant, server, nonce ────────────▶
//	         ◀────────────────────────── challenge: nonce, or that no proof is needed
//	proof: HMAC of both with the key ───────────────────▶
//	         ◀────────────────────────── verdict, and the same with another label
//
// Before the last reply there may be others that say to wait until it is the client's turn to
// connect. No message is longer than [MaxMessage], so an unauthenticated peer cannot make the other side
// allocate much. The key does not cross the wire. What each side says next of its queue pairs has
// a [Seal]; what comes afterwards is neither encrypted nor signed.
//
// The hello and each reply begin with their length, the version of their sender, and its [Features]. Bytes
// behind the part that the receiver knows are ignored, but signed. So a later version may add fields
// to these messages, and use a new feature in all later ones if the other side has offered it.
package greet

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Lengths in bytes.
const (
	HeadSize   = 8 // of what a hello and a reply begin with: see [Length]
	MaxMessage = 1024
	ProofSize  = sha256.Size

	MaxName   = 64  // of a tenant
	MaxServer = 512 // of a server's name
	MinKey    = 16  // a shorter one could be guessed

	nonceSize  = 32
	headFixed  = 16
	helloFixed = 88
	replySize  = 52 // of a reply without text
)

const magic = 0xca4e9ee7

// Version is the version of the protocol, for errors: what the sides can do they say by [Features].
const Version = 1

// Features are what a side can do beyond version 1, one bit each. A side that requires one ends the
// greeting if the other does not offer it; what it only offers an older side ignores.
type Features uint32

// known are the features of this version.
const known Features = 0

// Transport is what is to follow on the connection.
type Transport uint8

const (
	RDMA Transport = iota + 1 // the exchange of a link
	TCP                       // messages
	DC                        // messages, the first of which is of a target to READ through
	transports
)

var (
	// ErrMalformed: the peer speaks something else.
	ErrMalformed = errors.New("what the peer says is not the cache's")
	// ErrDenied: the server does not know the tenant, or the key is another one.
	ErrDenied = errors.New("the server does not admit this tenant with this key")
	// ErrKeyWanted: the server wants a proof, and the client has no key.
	ErrKeyWanted = errors.New("the server wants a tenant's key")
	// ErrServerUnauthenticated: the server has not proved that it has the key.
	ErrServerUnauthenticated = errors.New("the server has not proved that it has the tenant's key")
	// ErrFull: the tenant has as many clients as it may have.
	ErrFull = errors.New("the tenant has as many clients as it may have")
)

// VersionError is the end of a greeting in which one side requires what the other cannot do.
type VersionError struct {
	Ours, Theirs uint16
	Missing      Features
	Peer         bool // the peer lacks them; otherwise this side
}

func (e *VersionError) Error() string {
	if e.Peer {
		return fmt.Sprintf("the peer, of version %d, has no features %#x, which this version %d requires", e.Theirs, uint32(e.Missing), e.Ours)
	}
	return fmt.Sprintf("the peer, of version %d, requires features %#x, which this version %d does not have", e.Theirs, uint32(e.Missing), e.Ours)
}

// OtherError is the end of a greeting with another server than the one that the client named.
type OtherError struct {
	Named string // by the client
	Here  string
}

func (e *OtherError) Error() string {
	return fmt.Sprintf("the server is %q, and not %q", e.Here, e.Named)
}

// status is a server's answer.
type status uint8

const (
	come   status = iota + 1 // in a challenge: no proof is wanted
	prove                    // in a challenge
	denied                   // in a verdict
	full                     // in a verdict
	later                    // in place of the last reply: another one follows
	other                    // in the last reply; the text is the server's name
	unable                   // in a challenge: the client requires features that are missing
	statuses
)

// Length returns the length of the message that begins with these [HeadSize] bytes.
func Length(head []byte) (int, error) {
	n := int(binary.LittleEndian.Uint16(head[6:]))
	if binary.LittleEndian.Uint32(head) != magic || n < HeadSize || n > MaxMessage {
		return 0, ErrMalformed
	}
	return n, nil
}

// head is what a hello and a reply begin with.
type head struct {
	version           uint16
	offered, required Features
}

func (h head) append(b []byte, length int) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, magic)
	b = le.AppendUint16(b, h.version)
	b = le.AppendUint16(b, uint16(length))
	b = le.AppendUint32(b, uint32(h.offered))
	return le.AppendUint32(b, uint32(h.required))
}

// readHead decodes the head of a message. If the peer requires what is missing here, nothing else of the
// message needs to be as this version has it.
func readHead(b []byte) (h head, err error) {
	if len(b) < headFixed {
		return h, ErrMalformed
	}
	if n, _ := Length(b); n != len(b) {
		return h, ErrMalformed
	}
	le := binary.LittleEndian
	h = head{le.Uint16(b[4:]), Features(le.Uint32(b[8:])), Features(le.Uint32(b[12:]))}
	if missing := h.required &^ known; missing != 0 {
		return h, &VersionError{Ours: Version, Theirs: h.version, Missing: missing}
	}
	return h, nil
}

// Hello is a client's first message.
type Hello struct {
	Transport Transport
	Tenant    string         // at most [MaxName] bytes
	Server    string         // the server's address as the client's program wrote it, at most [MaxServer] bytes
	Address   netip.AddrPort // to which the client has connected; zero if there is none
	Client    [16]byte       // the same for all connections of one client
	Nonce     [nonceSize]byte
	Required  Features
}

// ReadHello decodes a hello, and returns a [VersionError] if the client requires what is missing here.
func ReadHello(b []byte) (h Hello, err error) {
	head, err := readHead(b)
	switch {
	case err != nil:
		return h, err
	case len(b) < helloFixed:
		return h, ErrMalformed
	}
	le := binary.LittleEndian
	tenant, server := int(b[17]), int(le.Uint16(b[18:]))
	h.Transport = Transport(b[16])
	if h.Transport == 0 || h.Transport >= transports || tenant > MaxName || server > MaxServer || len(b) < helloFixed+tenant+server {
		return Hello{}, ErrMalformed
	}
	copy(h.Nonce[:], b[20:])
	copy(h.Client[:], b[52:])
	if port := le.Uint16(b[84:]); port != 0 {
		h.Address = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[68:84])).Unmap(), port)
	}
	h.Required = head.required
	names := b[helloFixed:]
	h.Tenant, h.Server = string(names[:tenant]), string(names[tenant:tenant+server])
	return h, nil
}

func (h *Hello) append(b []byte) []byte {
	le := binary.LittleEndian
	b = head{Version, known, h.Required}.append(b, helloFixed+len(h.Tenant)+len(h.Server))
	b = append(b, byte(h.Transport), byte(len(h.Tenant)))
	b = le.AppendUint16(b, uint16(len(h.Server)))
	b = append(append(b, h.Nonce[:]...), h.Client[:]...)
	at := [16]byte{}
	if h.Address.IsValid() {
		at = h.Address.Addr().As16()
	}
	b = le.AppendUint16(append(b, at[:]...), h.Address.Port())
	return append(append(append(b, 0, 0), h.Tenant...), h.Server...)
}

// Check returns an [OtherError] if the hello is for another server than the one at this address. A server
// with names takes only clients that have written one of them, or the address. Without names the client
// has to have connected to the address, whatever it has written.
func (h *Hello) Check(names []string, at netip.AddrPort) error {
	switch {
	case !at.IsValid() || h.Server == at.String() || slices.Contains(names, h.Server):
		return nil
	case len(names) > 0:
		return &OtherError{h.Server, names[0]}
	case h.Address != at:
		return &OtherError{fmt.Sprintf("%s at %v", h.Server, h.Address), at.String()}
	}
	return nil
}

func newReply(s status, body []byte, text string) []byte {
	b := head{Version, known, 0}.append(nil, replySize+len(text))
	b = append(b, byte(s), 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	return append(append(append(b, body...), make([]byte, nonceSize-len(body))...), text...)
}

// reply is a decoded reply.
type reply struct {
	head
	status status
	body   []byte
	text   string
}

func readReply(b []byte) (r reply, err error) {
	r.head, err = readHead(b)
	switch {
	case err != nil:
		return r, err
	case len(b) < replySize:
		return r, ErrMalformed
	}
	n := int(binary.LittleEndian.Uint16(b[18:]))
	if r.status = status(b[16]); r.status == 0 || r.status >= statuses || len(b) < replySize+n {
		return r, ErrMalformed
	}
	r.body, r.text = b[20:replySize], string(b[replySize:replySize+n])
	return r, nil
}

// Later returns a reply that tells the client to wait for another one.
func Later() []byte { return newReply(later, nil, "") }

// Unable returns the reply to a hello for which [ReadHello] returns a [VersionError].
func Unable() []byte { return newReply(unable, nil, "") }

// IsLater reports whether a reply says to wait.
func IsLater(b []byte) bool {
	r, err := readReply(b)
	return err == nil && r.status == later
}

// What each side signs begins with a label of its own: no side's proof is the other's.
const (
	byClient = "goverbs cache: client"
	byServer = "goverbs cache: server"
)

// sign returns a proof that its maker has the key, good for these two messages only: each begins with
// its length, so no other two have the same bytes.
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
