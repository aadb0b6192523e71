package verbs

import (
	"encoding/binary"
	"fmt"
)

// The protocol of streams, without devices and clocks.
//
// Each side has a ring that the other fills by WRITE with immediate, in order.
// The immediate tells how many bytes came, or that these were the last ones, or
// gives back credit: how many bytes and messages the receiver has done with. A
// sender keeps within the free part of the ring and below the number of
// messages that the receiver takes, so that no message ever finds the peer
// without a posted receive.

// Immediates.
const (
	immCredit = 1 << 31 // bits 22..30: messages, bits 0..21: units of bytes
	immFin    = 1 << 30 // no bytes follow the ones of this message
	immLength = immFin - 1

	creditUnit    = 64
	creditMaxUnit = 1<<22 - 1
	creditMaxMsgs = 1<<9 - 1
)

// streamHello tells the peer of the ring that it writes to.
type streamHello struct {
	ring     Region
	messages uint16 // that may be under way to the ring
}

const (
	helloMagic   = "GVST"
	helloVersion = 1
	helloLen     = 24

	minRing     = 4 << 10
	maxRing     = 64 << 20
	minMessages = 8
	maxMessages = 256

	// A side gives back credit when it has a quarter of the ring or of the
	// messages, so at most eight such messages are under way. The rest is for
	// the end.
	spareReceives = 16
)

// encode: "GVST" | version 1 | 0 | messages 2 | ring size 4 | rkey 4 |
// address 8, all big endian.
func (h *streamHello) encode() []byte {
	be := binary.BigEndian
	b := append(make([]byte, 0, helloLen), helloMagic...)
	b = append(b, helloVersion, 0)
	b = be.AppendUint16(b, h.messages)
	b = be.AppendUint32(b, uint32(h.ring.Length))
	b = be.AppendUint32(b, h.ring.RKey)
	return be.AppendUint64(b, h.ring.Addr)
}

// decodeHello takes private data, which has zeros behind the message.
func decodeHello(b []byte) (streamHello, error) {
	bad := func(detail ...any) (streamHello, error) {
		return streamHello{}, opError("decode", "stream greeting", ErrMessage, detail...)
	}
	if len(b) < helloLen || string(b[:4]) != helloMagic {
		return bad("the peer speaks something else")
	}
	if b[4] != helloVersion || b[5] != 0 {
		return bad("version ", b[4], ".", b[5])
	}
	for _, v := range b[helloLen:] {
		if v != 0 {
			return bad("longer than it should be")
		}
	}
	be := binary.BigEndian
	h := streamHello{
		messages: be.Uint16(b[6:]),
		ring:     Region{Length: uint64(be.Uint32(b[8:])), RKey: be.Uint32(b[12:]), Addr: be.Uint64(b[16:])},
	}
	if h.ring.Length < minRing || h.ring.Length > maxRing || h.ring.Addr+h.ring.Length < h.ring.Addr {
		return bad("ring of ", h.ring.Length, " bytes at ", fmt.Sprintf("%#x", h.ring.Addr))
	}
	if h.messages < minMessages || h.messages > maxMessages {
		return bad(h.messages, " messages")
	}
	return h, nil
}

// streamFlow counts what is where. All positions count bytes from the
// beginning of the stream.
type streamFlow struct {
	// The ring here.
	ring     uint64
	messages uint64
	head     uint64 // bytes that came
	tail     uint64 // bytes that the program has taken
	returned uint64 // of which the peer knows
	came     uint64 // messages
	told     uint64 // of which the peer knows
	fin      bool

	// The ring of the peer, and the buffer here that is written from.
	peerRing     uint64
	peerMessages uint64
	buffer       uint64
	sent         uint64 // bytes
	credited     uint64 // bytes that the peer's program has taken
	done         uint64 // bytes that the device has done with
	msgsSent     uint64
	msgsCredited uint64
	msgsDone     uint64
	signaled     uint64 // bytes sent when a completion was last asked for
	msgsSignaled uint64
}

// unread is how many bytes the program can take.
func (f *streamFlow) unread() uint64 { return f.head - f.tail }

// received takes the immediate of a message that wrote n bytes.
func (f *streamFlow) received(imm, n uint32) error {
	bad := func(detail ...any) error {
		return opError("receive", "stream", ErrMessage, detail...)
	}
	if imm&immCredit != 0 {
		bytes, msgs := uint64(imm&creditMaxUnit)*creditUnit, uint64(imm>>22&creditMaxMsgs)
		if bytes > f.sent-f.credited || msgs > f.msgsSent-f.msgsCredited || n != 0 {
			return bad("credit of ", bytes, " bytes and ", msgs, " messages; owed are ", f.sent-f.credited, " and ", f.msgsSent-f.msgsCredited)
		}
		f.credited += bytes
		f.msgsCredited += msgs
		return nil
	}
	length := uint64(imm & immLength)
	switch {
	case f.fin:
		return bad("a message after the last one")
	case length != uint64(n):
		return bad(length, " bytes announced, ", n, " written")
	case length > f.ring-(f.head-f.returned):
		return bad(length, " bytes; the ring has ", f.ring-(f.head-f.returned), " left")
	case f.came-f.told >= f.messages:
		return bad("more messages than there is credit for")
	}
	f.head += length
	f.came++
	f.fin = imm&immFin != 0
	return nil
}

// readable is the next piece of the ring that the program can take.
func (f *streamFlow) readable() (from, to uint64) {
	from = f.tail % f.ring
	return from, from + min(f.unread(), f.ring-from)
}

// take notes that the program has taken n bytes. The answer is a message for
// the peer, if it is time for one.
func (f *streamFlow) take(n uint64) (imm uint32, ok bool) {
	f.tail += n
	bytes, msgs := f.tail-f.returned, f.came-f.told
	if f.fin || bytes < f.ring/4 && msgs < f.messages/4 {
		return 0, false
	}
	units := min(bytes/creditUnit, creditMaxUnit)
	msgs = min(msgs, creditMaxMsgs)
	f.returned += units * creditUnit
	f.told += msgs
	return immCredit | uint32(msgs)<<22 | uint32(units), true
}

// window is how many bytes the next message may have: of the peer's ring, and
// up to its end.
func (f *streamFlow) window() uint64 {
	if f.msgsSent-f.msgsCredited >= f.peerMessages-1 { // the last one is for the end
		return 0
	}
	return min(f.peerRing-(f.sent-f.credited), f.peerRing-f.sent%f.peerRing)
}

// room is how many bytes the buffer has for the next message, up to its end.
func (f *streamFlow) room() uint64 {
	if f.msgsSent-f.msgsDone >= f.peerMessages-1 {
		return 0
	}
	return min(f.buffer-(f.sent-f.done), f.buffer-f.sent%f.buffer)
}

// send notes a message of n bytes and answers whether to ask for its
// completion, and under which number.
func (f *streamFlow) send(n uint64, last bool) (id uint64, signal bool) {
	f.sent += n
	f.msgsSent++
	signal = last || f.sent-f.signaled >= f.buffer/8 || f.msgsSent-f.msgsSignaled >= f.peerMessages/8
	if signal {
		f.signaled, f.msgsSignaled = f.sent, f.msgsSent
	}
	return f.msgsSent&idMsgs<<40 | f.sent&idBytes, signal
}

const (
	idBytes = 1<<40 - 1
	idMsgs  = 1<<23 - 1
)

// completed takes the number of a message that is done with, as all before it
// are.
func (f *streamFlow) completed(id uint64) {
	f.done += (id - f.done) & idBytes
	f.msgsDone += (id>>40 - f.msgsDone) & idMsgs
}
