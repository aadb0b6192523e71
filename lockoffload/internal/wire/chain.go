package wire

import (
	"encoding/binary"
	"fmt"
)

// The messages that an initiator SENDs to a target's agent, and the agent's replies. All
// of it is little endian, all parts are multiples of 8 bytes:
//
//	request: version 1 | what 1 | operations 2 | length 4 | client 8 | sequence 8 |
//	         slot 4 | tries 4 | deadline in microseconds 4 | 0 4 | operations
//	reply:   version 1 | status 1 | operations 2 | length 4 | client 8 | sequence 8 |
//	         tries 4 | 0 4 | operations
//	operation: kind 1 | 0 1 | record 2 | length of data 4 | record version 8 | data, padded with 0
//
// What is 0 for a chain, 1 for one that takes the lock together with readers, 2 to ask
// for a turn at the lock and 3 to end it. The reply to 2 has one compare, with the word
// that the lock was reserved with as its version; 3 has one, with the sequence of the
// request that it ends as its version, and no reply.
//
// Client and sequence together are the chain's key: a request with the key of
// an earlier one is the same chain again. A reply has one operation for each
// of the request, in their order, or none when nothing was accessed.
const (
	chainVersion     = 1
	ChainRequestHead = 40
	ChainReplyHead   = 32
	AccessHead       = 16
)

// AccessKind is what an operation of a chain does.
type AccessKind uint8

const (
	AccessRead    AccessKind = 1 // reply: version, data
	AccessWrite   AccessKind = 2 // request: data; reply: the new version
	AccessCompare AccessKind = 3 // request: the version that the record must have; reply: the one that it has
)

// ChainStatus is how a chain ended at the target.
type ChainStatus uint8

const (
	ChainDone        ChainStatus = 1 // all operations were executed
	ChainDiffers     ChainStatus = 2 // a compare found another version: nothing was written
	ChainNotAcquired ChainStatus = 3 // the lock was held at each try: nothing was accessed
	ChainBusy        ChainStatus = 4 // the agent had no room: nothing was tried
	ChainUnknown     ChainStatus = 5 // the sequence is older than those that are remembered
	ChainRefused     ChainStatus = 6 // the request makes no sense: nothing was tried
	ChainDamaged     ChainStatus = 7 // a record failed its checksum: nothing was written
)

// turnKind is the kind of a request that is no chain: for a turn at the lock, or its end.
type turnKind uint8

const (
	TurnNone turnKind = 0
	TurnAsk  turnKind = 2
	TurnEnd  turnKind = 3
)

// Access is one operation. Data is part of the message.
type Access struct {
	Kind    AccessKind
	Record  uint16
	Version uint64
	Data    []byte
}

// size returns the length of the operation in a message.
func (o *Access) size() int { return AccessHead + Pad8(len(o.Data)) }

func Pad8(n int) int { return (n + 7) &^ 7 }

// Accesses are the operations of a message that has been checked.
type Accesses struct {
	N   int
	raw []byte
}

// Next takes the first operation off. It must not be called more than n times.
func (o *Accesses) Next() Access {
	b := o.raw
	n := int(binary.LittleEndian.Uint32(b[4:]))
	op := Access{
		Kind: AccessKind(b[0]), Record: binary.LittleEndian.Uint16(b[2:]),
		Version: binary.LittleEndian.Uint64(b[8:]), Data: b[AccessHead : AccessHead+n : AccessHead+n],
	}
	o.raw = b[op.size():]
	o.N--
	return op
}

// ChainRequest is a chain descriptor. Decoded, it is a view of the message.
type ChainRequest struct {
	Client, Seq uint64
	Slot        uint32
	Shared      bool
	Turn        turnKind
	Tries       uint32 // lock commands at most; 0: no limit
	Deadline    uint32 // microseconds from the arrival on; 0: as long as the agent lets any chain wait
	Agent       uint32 // that it was made for, by ChainReply.Agent; 0: whichever this is
	Ops         Accesses
}

// ChainReply is the reply to a ChainRequest.
type ChainReply struct {
	Client, Seq uint64
	Status      ChainStatus
	Tries       uint32
	Agent       uint32 // that replies: another one remembers none of its replies
	Ops         Accesses
}

// AppendTo appends the head of a request; AppendAccess and SealMessage follow. The
// slice keeps its array if that is large enough.
func (r *ChainRequest) AppendTo(b []byte) []byte {
	le := binary.LittleEndian
	what := byte(r.Turn)
	if r.Shared {
		what = 1
	}
	b = append(b, chainVersion, what, 0, 0, 0, 0, 0, 0)
	b = le.AppendUint64(b, r.Client)
	b = le.AppendUint64(b, r.Seq)
	b = le.AppendUint32(b, r.Slot)
	b = le.AppendUint32(b, r.Tries)
	b = le.AppendUint32(b, r.Deadline)
	return le.AppendUint32(b, r.Agent)
}

// AppendTo appends the head of a reply.
func (r *ChainReply) AppendTo(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, chainVersion, byte(r.Status), 0, 0, 0, 0, 0, 0)
	b = le.AppendUint64(b, r.Client)
	b = le.AppendUint64(b, r.Seq)
	b = le.AppendUint32(b, r.Tries)
	return le.AppendUint32(b, r.Agent)
}

// AppendTurn appends the message with which a client asks for a turn at a slot's lock
// or, with the sequence of such a request in of, ends that turn.
func AppendTurn(b []byte, client, seq uint64, slot, agent uint32, of uint64) []byte {
	at := len(b)
	r := ChainRequest{Client: client, Seq: seq, Slot: slot, Turn: TurnAsk, Agent: agent}
	if of == 0 {
		b = r.AppendTo(b)
		return append(b[:at], SealMessage(b[at:], 0)...)
	}
	r.Turn = TurnEnd
	b = AppendAccess(r.AppendTo(b), Access{Kind: AccessCompare, Version: of})
	return append(b[:at], SealMessage(b[at:], 1)...)
}

func AppendAccess(b []byte, op Access) []byte {
	le := binary.LittleEndian
	b = append(b, byte(op.Kind), 0)
	b = le.AppendUint16(b, op.Record)
	b = le.AppendUint32(b, uint32(len(op.Data)))
	b = le.AppendUint64(b, op.Version)
	b = append(b, op.Data...)
	var zero [8]byte
	return append(b, zero[:Pad8(len(op.Data))-len(op.Data)]...)
}

// SealMessage completes a message of n operations, which must begin at b[0].
func SealMessage(b []byte, n int) []byte {
	binary.LittleEndian.PutUint16(b[2:], uint16(n))
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
	return b
}

// DecodeRequest checks a whole message. Whatever it accepts is exactly what
// encoding the result again makes.
func DecodeRequest(b []byte) (r ChainRequest, err error) {
	if err := checkHead(b, ChainRequestHead); err != nil {
		return r, err
	}
	le := binary.LittleEndian
	r = ChainRequest{
		Client: le.Uint64(b[8:]), Seq: le.Uint64(b[16:]), Slot: le.Uint32(b[24:]), Shared: b[1] == 1,
		Tries: le.Uint32(b[28:]), Deadline: le.Uint32(b[32:]), Agent: le.Uint32(b[36:]),
	}
	if b[1] > byte(TurnEnd) || r.Seq == 0 {
		return r, errWireHead
	}
	if !r.Shared {
		r.Turn = turnKind(b[1])
	}
	r.Ops, err = checkAccesses(b, ChainRequestHead)
	if r.Turn == TurnAsk && r.Ops.N != 0 || r.Turn == TurnEnd && r.Ops.N != 1 {
		return r, errWireOp
	}
	return r, err
}

func DecodeReply(b []byte) (r ChainReply, err error) {
	if err := checkHead(b, ChainReplyHead); err != nil {
		return r, err
	}
	le := binary.LittleEndian
	r = ChainReply{Client: le.Uint64(b[8:]), Seq: le.Uint64(b[16:]), Status: ChainStatus(b[1]), Tries: le.Uint32(b[24:]), Agent: le.Uint32(b[28:])}
	if r.Status < ChainDone || r.Status > ChainDamaged || r.Seq == 0 {
		return r, errWireHead
	}
	r.Ops, err = checkAccesses(b, ChainReplyHead)
	return r, err
}

// Made once: refusing an invalid message must not allocate either.
var (
	errWireLength  = fmt.Errorf("%w: message cut short or too long", ErrMalformed)
	errWireVersion = fmt.Errorf("%w: of another version", ErrMalformed)
	errWireHead    = fmt.Errorf("%w: head", ErrMalformed)
	errWireOp      = fmt.Errorf("%w: operation", ErrMalformed)
)

func checkHead(b []byte, head int) error {
	switch {
	case len(b) < head:
		return errWireLength
	case b[0] != chainVersion:
		return errWireVersion
	case uint64(binary.LittleEndian.Uint32(b[4:])) != uint64(len(b)):
		return errWireLength
	}
	return nil
}

// checkAccesses checks all operations, so that Accesses.Next cannot fail.
func checkAccesses(b []byte, head int) (Accesses, error) {
	n := int(binary.LittleEndian.Uint16(b[2:]))
	ops := Accesses{N: n, raw: b[head:]}
	rest := ops.raw
	for range n {
		if len(rest) < AccessHead {
			return Accesses{}, errWireLength
		}
		kind, length := AccessKind(rest[0]), uint64(binary.LittleEndian.Uint32(rest[4:]))
		if kind < AccessRead || kind > AccessCompare || rest[1] != 0 {
			return Accesses{}, errWireOp
		}
		rest = rest[AccessHead:]
		padded := (length + 7) &^ 7
		if padded > uint64(len(rest)) {
			return Accesses{}, errWireLength
		}
		for _, p := range rest[length:padded] {
			if p != 0 {
				return Accesses{}, errWireOp
			}
		}
		rest = rest[padded:]
	}
	if len(rest) != 0 {
		return Accesses{}, errWireLength
	}
	return ops, nil
}
