package lockoffload

import (
	"encoding/binary"
	"fmt"
)

// What an initiator SENDs to a target's agent, and what the agent answers. All
// of it is little endian, all parts are multiples of 8 bytes:
//
//	request: version 1 | what 1 | operations 2 | length 4 | client 8 | sequence 8 |
//	         slot 4 | tries 4 | deadline in microseconds 4 | 0 4 | operations
//	reply:   version 1 | status 1 | operations 2 | length 4 | client 8 | sequence 8 |
//	         tries 4 | 0 4 | operations
//	operation: kind 1 | 0 1 | record 2 | length of data 4 | record version 8 | data, padded with 0
//
// What is 0 for a chain, 1 for one that takes the lock together with readers, 2 to ask
// for a turn at the lock and 3 to end it. The answer to 2 has one compare, whose version
// is the word that the lock was reserved with; 3 has one, whose version is the sequence
// of the request that it ends, and no answer.
//
// Client and sequence together are the chain's key: a request with the key of
// an earlier one is the same chain again. A reply has one operation for each
// of the request, in their order, or none when nothing was accessed.
const (
	wireVersion = 1
	requestHead = 40
	replyHead   = 32
	accessHead  = 16
)

// accessKind is what an operation of a chain does.
type accessKind uint8

const (
	accessRead    accessKind = 1 // reply: version, data
	accessWrite   accessKind = 2 // request: data; reply: the new version
	accessCompare accessKind = 3 // request: the version that the record must have; reply: the one that it has
)

// chainStatus is how a chain ended at the target.
type chainStatus uint8

const (
	chainDone        chainStatus = 1 // all operations were executed
	chainDiffers     chainStatus = 2 // a compare found another version: nothing was written
	chainNotAcquired chainStatus = 3 // the lock was held at each try: nothing was accessed
	chainBusy        chainStatus = 4 // the agent had no room: nothing was tried
	chainUnknown     chainStatus = 5 // the sequence is older than those that are remembered
	chainRefused     chainStatus = 6 // the request makes no sense: nothing was tried
	chainDamaged     chainStatus = 7 // a record failed its checksum: nothing was written
)

// turnKind is what a request that is no chain wants: a turn at the lock, or its end.
type turnKind uint8

const (
	turnNone turnKind = 0
	turnAsk  turnKind = 2
	turnEnd  turnKind = 3
)

// wireAccess is one operation. Data is part of the message.
type wireAccess struct {
	kind    accessKind
	record  uint16
	version uint64
	data    []byte
}

// size is what the operation takes in a message.
func (o *wireAccess) size() int { return accessHead + pad8(len(o.data)) }

func pad8(n int) int { return (n + 7) &^ 7 }

// wireAccesses are the operations of a message that has been checked.
type wireAccesses struct {
	n   int
	raw []byte
}

// next takes the first operation off. It must not be called more than n times.
func (o *wireAccesses) next() wireAccess {
	b := o.raw
	n := int(binary.LittleEndian.Uint32(b[4:]))
	op := wireAccess{
		kind: accessKind(b[0]), record: binary.LittleEndian.Uint16(b[2:]),
		version: binary.LittleEndian.Uint64(b[8:]), data: b[accessHead : accessHead+n : accessHead+n],
	}
	o.raw = b[op.size():]
	o.n--
	return op
}

// chainRequest is a chain descriptor. Decoded, it is a view of the message.
type chainRequest struct {
	client, seq uint64
	slot        uint32
	shared      bool
	turn        turnKind
	tries       uint32 // lock commands at most; 0: no limit
	deadline    uint32 // microseconds from the arrival on; 0: as long as the agent lets any chain wait
	agent       uint32 // that it was made for, by chainReply.agent; 0: whichever this is
	ops         wireAccesses
}

// chainReply is its answer.
type chainReply struct {
	client, seq uint64
	status      chainStatus
	tries       uint32
	agent       uint32 // which answers: another one remembers none of its answers
	ops         wireAccesses
}

// appendTo appends the head of a request; appendAccess and sealMessage follow. The
// slice keeps its array if that is large enough.
func (r *chainRequest) appendTo(b []byte) []byte {
	le := binary.LittleEndian
	what := byte(r.turn)
	if r.shared {
		what = 1
	}
	b = append(b, wireVersion, what, 0, 0, 0, 0, 0, 0)
	b = le.AppendUint64(b, r.client)
	b = le.AppendUint64(b, r.seq)
	b = le.AppendUint32(b, r.slot)
	b = le.AppendUint32(b, r.tries)
	b = le.AppendUint32(b, r.deadline)
	return le.AppendUint32(b, r.agent)
}

// appendTo appends the head of a reply.
func (r *chainReply) appendTo(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, wireVersion, byte(r.status), 0, 0, 0, 0, 0, 0)
	b = le.AppendUint64(b, r.client)
	b = le.AppendUint64(b, r.seq)
	b = le.AppendUint32(b, r.tries)
	return le.AppendUint32(b, r.agent)
}

func appendAccess(b []byte, op wireAccess) []byte {
	le := binary.LittleEndian
	b = append(b, byte(op.kind), 0)
	b = le.AppendUint16(b, op.record)
	b = le.AppendUint32(b, uint32(len(op.data)))
	b = le.AppendUint64(b, op.version)
	b = append(b, op.data...)
	var zero [8]byte
	return append(b, zero[:pad8(len(op.data))-len(op.data)]...)
}

// sealMessage completes a message of n operations, which must begin at b[0].
func sealMessage(b []byte, n int) []byte {
	binary.LittleEndian.PutUint16(b[2:], uint16(n))
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
	return b
}

// decodeRequest checks a whole message. Whatever it accepts is exactly what
// encoding the result again makes.
func decodeRequest(b []byte) (r chainRequest, err error) {
	if err := checkHead(b, requestHead); err != nil {
		return r, err
	}
	le := binary.LittleEndian
	r = chainRequest{
		client: le.Uint64(b[8:]), seq: le.Uint64(b[16:]), slot: le.Uint32(b[24:]), shared: b[1] == 1,
		tries: le.Uint32(b[28:]), deadline: le.Uint32(b[32:]), agent: le.Uint32(b[36:]),
	}
	if b[1] > byte(turnEnd) || r.seq == 0 {
		return r, errWireHead
	}
	if !r.shared {
		r.turn = turnKind(b[1])
	}
	r.ops, err = checkAccesses(b, requestHead)
	if r.turn == turnAsk && r.ops.n != 0 || r.turn == turnEnd && r.ops.n != 1 {
		return r, errWireOp
	}
	return r, err
}

func decodeReply(b []byte) (r chainReply, err error) {
	if err := checkHead(b, replyHead); err != nil {
		return r, err
	}
	le := binary.LittleEndian
	r = chainReply{client: le.Uint64(b[8:]), seq: le.Uint64(b[16:]), status: chainStatus(b[1]), tries: le.Uint32(b[24:]), agent: le.Uint32(b[28:])}
	if r.status < chainDone || r.status > chainDamaged || r.seq == 0 {
		return r, errWireHead
	}
	r.ops, err = checkAccesses(b, replyHead)
	return r, err
}

// Made once: refusing what strangers send must not allocate either.
var (
	errWireLength  = fmt.Errorf("%w: message cut short or too long", ErrMessage)
	errWireVersion = fmt.Errorf("%w: of another version", ErrMessage)
	errWireHead    = fmt.Errorf("%w: head", ErrMessage)
	errWireOp      = fmt.Errorf("%w: operation", ErrMessage)
)

func checkHead(b []byte, head int) error {
	switch {
	case len(b) < head:
		return errWireLength
	case b[0] != wireVersion:
		return errWireVersion
	case uint64(binary.LittleEndian.Uint32(b[4:])) != uint64(len(b)):
		return errWireLength
	}
	return nil
}

// checkAccesses walks over all operations, so that nobody after it can fail.
func checkAccesses(b []byte, head int) (wireAccesses, error) {
	n := int(binary.LittleEndian.Uint16(b[2:]))
	ops := wireAccesses{n: n, raw: b[head:]}
	rest := ops.raw
	for range n {
		if len(rest) < accessHead {
			return wireAccesses{}, errWireLength
		}
		kind, length := accessKind(rest[0]), uint64(binary.LittleEndian.Uint32(rest[4:]))
		if kind < accessRead || kind > accessCompare || rest[1] != 0 {
			return wireAccesses{}, errWireOp
		}
		rest = rest[accessHead:]
		padded := (length + 7) &^ 7
		if padded > uint64(len(rest)) {
			return wireAccesses{}, errWireLength
		}
		for _, p := range rest[length:padded] {
			if p != 0 {
				return wireAccesses{}, errWireOp
			}
		}
		rest = rest[padded:]
	}
	if len(rest) != 0 {
		return wireAccesses{}, errWireLength
	}
	return ops, nil
}
