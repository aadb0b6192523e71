// Package flow is the protocol of streams, without devices and clocks.
//
// Each side has a ring that the other fills by WRITE with immediate, in order.
// The immediate says how many bytes came, or that these were the last ones, or
// gives back credit: how many bytes and messages the receiver has done with. A
// sender keeps within the free part of the ring and below the number of
// messages that the receiver takes, so that no message ever finds the peer
// without a posted receive.
package flow

import "github.com/goverbs/goverbs/verbs/stream/internal/wire"

// SpareReceives are those beside the ones for the peer's messages. A side gives back
// credit when it has a quarter of the ring or of the messages, so at most eight such
// messages are under way. The rest is for the end.
const SpareReceives = 16

// Config is what both sides have, in bytes and messages.
type Config struct {
	Ring, Messages         uint64 // here
	PeerRing, PeerMessages uint64
	Buffer                 uint64 // here, to write from
}

// Flow counts what is where. All positions count bytes from the
// beginning of the stream.
type Flow struct {
	Config

	// The ring here.
	head     uint64 // bytes that came
	tail     uint64 // bytes that the program has taken
	returned uint64 // of which the peer knows
	came     uint64 // messages
	told     uint64 // of which the peer knows
	fin      bool

	// The ring of the peer, and the buffer here that is written from.
	sent         uint64 // bytes
	credited     uint64 // bytes that the peer's program has taken
	done         uint64 // bytes that the device has done with
	msgsSent     uint64
	msgsCredited uint64
	msgsDone     uint64
	signaled     uint64 // bytes sent when a completion was last asked for
	msgsSignaled uint64
}

// New is the state of a stream that begins.
func New(c Config) *Flow { return &Flow{Config: c} }

// Unread is how many bytes the program can take.
func (f *Flow) Unread() uint64 { return f.head - f.tail }

// Received takes the immediate of a message that wrote n bytes.
func (f *Flow) Received(imm, n uint32) error {
	if imm&wire.Credit != 0 {
		bytes, msgs := uint64(imm&wire.MaxCreditUnits)*wire.CreditUnit, uint64(imm>>22&wire.MaxCreditMessages)
		if bytes > f.sent-f.credited || msgs > f.msgsSent-f.msgsCredited || n != 0 {
			return wire.Violated("credit of ", bytes, " bytes and ", msgs, " messages; owed are ", f.sent-f.credited, " and ", f.msgsSent-f.msgsCredited)
		}
		f.credited += bytes
		f.msgsCredited += msgs
		return nil
	}
	length := uint64(imm & wire.Length)
	switch {
	case f.fin:
		return wire.Violated("a message after the last one")
	case length != uint64(n):
		return wire.Violated(length, " bytes announced, ", n, " written")
	case length > f.Ring-(f.head-f.returned):
		return wire.Violated(length, " bytes; the ring has ", f.Ring-(f.head-f.returned), " left")
	case f.came-f.told >= f.Messages:
		return wire.Violated("more messages than there is credit for")
	}
	f.head += length
	f.came++
	f.fin = imm&wire.Fin != 0
	return nil
}

// Ended reports whether the peer's last byte has come.
func (f *Flow) Ended() bool { return f.fin }

// Readable is the next piece of the ring that the program can take.
func (f *Flow) Readable() (from, to uint64) {
	from = f.tail % f.Ring
	return from, from + min(f.Unread(), f.Ring-from)
}

// Take notes that the program has taken n bytes. The result is a message for
// the peer, if it is time for one.
func (f *Flow) Take(n uint64) (imm uint32, ok bool) {
	f.tail += n
	bytes, msgs := f.tail-f.returned, f.came-f.told
	if f.fin || bytes < f.Ring/4 && msgs < f.Messages/4 {
		return 0, false
	}
	units := min(bytes/wire.CreditUnit, wire.MaxCreditUnits)
	msgs = min(msgs, wire.MaxCreditMessages)
	f.returned += units * wire.CreditUnit
	f.told += msgs
	return wire.Credit | uint32(msgs)<<22 | uint32(units), true
}

// Window is how many bytes the next message may have: of the peer's ring, and
// up to its end.
func (f *Flow) Window() uint64 {
	if f.msgsSent-f.msgsCredited >= f.PeerMessages-1 { // the last one is for the end
		return 0
	}
	return min(f.PeerRing-(f.sent-f.credited), f.PeerRing-f.sent%f.PeerRing)
}

// Room is how many bytes the buffer has for the next message, up to its end.
func (f *Flow) Room() uint64 {
	if f.msgsSent-f.msgsDone >= f.PeerMessages-1 {
		return 0
	}
	return min(f.Buffer-(f.sent-f.done), f.Buffer-f.sent%f.Buffer)
}

// Next is where the next message lies in the buffer and in the peer's ring.
func (f *Flow) Next() (from, to uint64) { return f.sent % f.Buffer, f.sent % f.PeerRing }

// Send notes a message of n bytes and returns its number, and whether to ask
// for its completion.
func (f *Flow) Send(n uint64, last bool) (id uint64, signal bool) {
	f.sent += n
	f.msgsSent++
	signal = last || f.sent-f.signaled >= f.Buffer/8 || f.msgsSent-f.msgsSignaled >= f.PeerMessages/8
	if signal {
		f.signaled, f.msgsSignaled = f.sent, f.msgsSent
	}
	return f.msgsSent&idMsgs<<40 | f.sent&idBytes, signal
}

const (
	idBytes = 1<<40 - 1
	idMsgs  = 1<<23 - 1
)

// Completed takes the number of a message that is done with, as all before it
// are.
func (f *Flow) Completed(id uint64) {
	f.done += (id - f.done) & idBytes
	f.msgsDone += (id>>40 - f.msgsDone) & idMsgs
}

// AllDone reports whether the device has done with all that was sent.
func (f *Flow) AllDone() bool { return f.msgsDone == f.msgsSent }
