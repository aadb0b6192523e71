// Package wire has the layouts of what dc sends: control messages and addresses.
package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// GID is the address of a port.
type GID [16]byte

// MTU is the code of a path MTU: 1 is 256 bytes, 5 is 4096.
type MTU uint8

// Bytes is 0 for a code that means nothing.
func (m MTU) Bytes() int {
	if m < 1 || m > 5 {
		return 0
	}
	return 128 << m
}

// Kind is what a control message says.
type Kind uint8

const (
	// From the initiator.

	Connect   Kind = 1 + iota // open a session with this initiator context
	KeepAlive                 // the session is in use: keep it
	Detach                    // the session is over
	Probe                     // are you there?

	// From the target.

	Attached // the reply to Connect: a session and its responder context
	Busy     // no responder context is free: come again after Wait
	Refused  // no session: see Reason
	Detached // the reply to Detach
	Recall   // others wait for a responder context: please detach soon
	Alive    // the reply to KeepAlive and Probe

	lastKind = Alive
)

var kinds = [...]string{"?", "connect", "keep-alive", "detach", "probe", "attached", "busy", "refused", "detached", "recall", "alive"}

func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return fmt.Sprintf("kind %d", k)
}

// Reason is why a target refuses, or why an initiator detaches.
type Reason uint8

const (
	NoReason     Reason = iota
	StaleTarget         // meant for an earlier target of this address
	StaleSession        // no such session
	BadSetup            // the responder context could not be set up
	Broken              // with Detach: requests failed, the responder context is suspect
	lastReason   = Broken
)

// PacketsCount says, with Attached, that what the responder context receives is as good
// as a keep-alive. An initiator that does not know it sends some nevertheless.
const PacketsCount = 1

// ControlAddress is where control messages go.
type ControlAddress struct {
	GID  GID
	QPN  uint32
	QKey uint32
	LID  uint16
}

// Message is a control message. All kinds have one form; what a kind does not
// need is zero or echoed.
type Message struct {
	Kind    Kind
	Reason  Reason
	MTU     MTU
	Epoch   uint64 // generation of the target; 0 from an initiator: whichever
	Sender  uint64 // generation of the initiator
	Context uint32 // of the initiator: which of its contexts
	Attempt uint32 // counts the sessions that this context has asked for
	Peer    uint32 // the initiator's number for the target
	QPN     uint32 // of the initiator context, or of the responder context
	PSN     uint32 // first packet that this queue pair sends
	Wait    uint32 // milliseconds. Busy: until the next try; Attached: the lease
	Key     uint64 // access key, in all that initiators send; in Attached: [PacketsCount] or 0
	Session uint64
	From    ControlAddress // where replies go
	// Reply is the address of a target of the initiator's own program, in message
	// form; zero means none. It is in Connect.
	Reply [AddressLen]byte
}

const (
	messageMagic   = "GVDC"
	messageVersion = 3
	// MessageLen is the length of the message form.
	MessageLen = 4 + 4 + 3*8 + 6*4 + 8 + 16 + 4 + 4 + 2 + 2 + AddressLen + 4
	checksumAt = MessageLen - 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode writes the message form, big endian, into b, which must have room for MessageLen
// bytes, and returns its length:
//
//	"GVDC" | version 1 | kind 1 | reason 1 | MTU 1 | epoch 8 | sender 8 |
//	session 8 | context 4 | attempt 4 | peer 4 | QPN 4 | PSN 4 | wait 4 |
//	key 8 | GID 16 | control QPN 4 | Q_Key 4 | LID 2 | 0 2 | reply 52 | CRC-32C 4
func (m *Message) Encode(b []byte) int {
	be := binary.BigEndian
	b = append(b[:0:MessageLen], messageMagic...)
	b = append(b, messageVersion, byte(m.Kind), byte(m.Reason), byte(m.MTU))
	b = be.AppendUint64(b, m.Epoch)
	b = be.AppendUint64(b, m.Sender)
	b = be.AppendUint64(b, m.Session)
	b = be.AppendUint32(b, m.Context)
	b = be.AppendUint32(b, m.Attempt)
	b = be.AppendUint32(b, m.Peer)
	b = be.AppendUint32(b, m.QPN)
	b = be.AppendUint32(b, m.PSN)
	b = be.AppendUint32(b, m.Wait)
	b = be.AppendUint64(b, m.Key)
	b = append(b, m.From.GID[:]...)
	b = be.AppendUint32(b, m.From.QPN)
	b = be.AppendUint32(b, m.From.QKey)
	b = be.AppendUint16(b, m.From.LID)
	b = be.AppendUint16(b, 0)
	b = append(b, m.Reply[:]...)
	return len(be.AppendUint32(b, crc32.Checksum(b, castagnoli)))
}

// Decode takes exactly what Encode makes and returns false for anything else.
func (m *Message) Decode(b []byte) bool {
	be := binary.BigEndian
	if len(b) != MessageLen || string(b[:4]) != messageMagic || b[4] != messageVersion ||
		be.Uint32(b[checksumAt:]) != crc32.Checksum(b[:checksumAt], castagnoli) {
		return false
	}
	out := Message{
		Kind: Kind(b[5]), Reason: Reason(b[6]), MTU: MTU(b[7]),
		Epoch: be.Uint64(b[8:]), Sender: be.Uint64(b[16:]), Session: be.Uint64(b[24:]),
		Context: be.Uint32(b[32:]), Attempt: be.Uint32(b[36:]), Peer: be.Uint32(b[40:]),
		QPN: be.Uint32(b[44:]), PSN: be.Uint32(b[48:]), Wait: be.Uint32(b[52:]), Key: be.Uint64(b[56:]),
		From: ControlAddress{GID: GID(b[64:80]), QPN: be.Uint32(b[80:]), QKey: be.Uint32(b[84:]), LID: be.Uint16(b[88:])}, Reply: [AddressLen]byte(b[92:checksumAt]),
	}
	if out.Kind == 0 || out.Kind > lastKind || out.Reason > lastReason || be.Uint16(b[90:]) != 0 ||
		out.QPN>>24 != 0 || out.PSN>>24 != 0 || out.From.QPN>>24 != 0 || out.MTU.Bytes() == 0 {
		return false
	}
	*m = out
	return true
}
