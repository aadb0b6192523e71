package dc

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/goverbs/goverbs/verbs"
)

// kind is what a control message says.
type kind uint8

const (
	// From the initiator.
	msgConnect     kind = 1 + iota // open a session with this initiator context
	msgEstablished                 // the session is in use: keep it
	msgDetach                      // the session is over
	// From the target.
	msgAttached // the answer to connect: a session and its responder context
	msgBusy     // no responder context is free: come again after wait
	msgRefuse   // no session: see reason
	msgDetached // the answer to detach
	msgRecall   // others wait for a responder context: please detach soon
	lastKind    = msgRecall
)

// reason is why a target refuses.
type reason uint8

const (
	noReason     reason = iota
	badKey              // the access key is wrong
	staleTarget         // meant for an earlier target of this address
	staleSession        // no such session
	badSetup            // the responder context could not be set up
	broken              // with detach: requests failed, the responder context is suspect
	lastReason   = broken
)

// place is where control messages go.
type place struct {
	gid  verbs.GID
	qpn  uint32
	qkey uint32
	lid  uint16
}

// message is a control message. All kinds have one form; what a kind does not
// need is zero or echoed.
type message struct {
	kind    kind
	reason  reason
	mtu     verbs.MTU
	epoch   uint64 // incarnation of the target; 0 in a connect: whichever
	sender  uint64 // incarnation of the initiator
	context uint32 // of the initiator: which of its contexts
	attempt uint32 // counts the connects of that context
	peer    uint32 // initiator's number for the target
	qpn     uint32 // of the initiator context, or of the responder context
	psn     uint32 // first packet that this queue pair sends
	wait    uint32 // milliseconds: busy: until the next try; attached: the lease
	key     uint64 // access key
	session uint64
	from    place // where answers go
}

const (
	messageMagic   = "GVDC"
	messageVersion = 1
	messageLen     = 4 + 4 + 3*8 + 6*4 + 8 + 16 + 4 + 4 + 2 + 2 + 4
)

// encode writes the message form, big endian, into b:
//
//	"GVDC" | version 1 | kind 1 | reason 1 | MTU 1 | epoch 8 | sender 8 |
//	session 8 | context 4 | attempt 4 | peer 4 | QPN 4 | PSN 4 | wait 4 |
//	key 8 | GID 16 | control QPN 4 | Q_Key 4 | LID 2 | 0 2 | CRC-32C 4
func (m *message) encode(b []byte) int {
	be := binary.BigEndian
	copy(b, messageMagic)
	b[4], b[5], b[6], b[7] = messageVersion, byte(m.kind), byte(m.reason), byte(m.mtu)
	be.PutUint64(b[8:], m.epoch)
	be.PutUint64(b[16:], m.sender)
	be.PutUint64(b[24:], m.session)
	for i, v := range [...]uint32{m.context, m.attempt, m.peer, m.qpn, m.psn, m.wait} {
		be.PutUint32(b[32+4*i:], v)
	}
	be.PutUint64(b[56:], m.key)
	copy(b[64:80], m.from.gid[:])
	be.PutUint32(b[80:], m.from.qpn)
	be.PutUint32(b[84:], m.from.qkey)
	be.PutUint16(b[88:], m.from.lid)
	be.PutUint16(b[90:], 0)
	be.PutUint32(b[92:], crc32.Checksum(b[:92], castagnoli))
	return messageLen
}

// decode takes exactly what encode makes and answers false for anything else.
func (m *message) decode(b []byte) bool {
	be := binary.BigEndian
	if len(b) != messageLen || string(b[:4]) != messageMagic || b[4] != messageVersion ||
		be.Uint32(b[92:]) != crc32.Checksum(b[:92], castagnoli) {
		return false
	}
	out := message{
		kind: kind(b[5]), reason: reason(b[6]), mtu: verbs.MTU(b[7]),
		epoch: be.Uint64(b[8:]), sender: be.Uint64(b[16:]), session: be.Uint64(b[24:]),
		context: be.Uint32(b[32:]), attempt: be.Uint32(b[36:]), peer: be.Uint32(b[40:]),
		qpn: be.Uint32(b[44:]), psn: be.Uint32(b[48:]), wait: be.Uint32(b[52:]), key: be.Uint64(b[56:]),
		from: place{gid: verbs.GID(b[64:80]), qpn: be.Uint32(b[80:]), qkey: be.Uint32(b[84:]), lid: be.Uint16(b[88:])},
	}
	if out.kind == 0 || out.kind > lastKind || out.reason > lastReason || be.Uint16(b[90:]) != 0 ||
		out.qpn>>24 != 0 || out.psn>>24 != 0 || out.from.qpn>>24 != 0 || out.mtu.Bytes() == 0 {
		return false
	}
	*m = out
	return true
}
