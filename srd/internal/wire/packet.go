// Package wire has the packets of reliable datagrams: their layout, encoders and
// decoders. All numbers are big endian.
//
//	header    28: version and type 1 | flags 1 | sub-flow 1 | 0 | token 8 | stamp 4 |
//	              number in the sub-flow 2 | sub-flows heard 2 | sender's slot 4 | verification tag 4
//	greeting  76: of a Hello
//	welcome   36, challenge 16, reset 8, echo 8: of packets of that type
//	credit     8, if the flags say so: packets taken 4 | that may be under way 2 | 0
//	response  24 and its masks, if the flags say so: what arrived of a packet flow
//	part      20, if the flags say so: a piece of a message; its bytes are the rest
//
// A packet has one layout: what a decoder accepts encodes to the same bytes.
package wire

import (
	"encoding/binary"
	"errors"
)

// Version is the version of the layout.
const Version = 5

// Type is what a packet is for.
type Type uint8

const (
	Flow      Type = 1 + iota // of an established session: a response, a part, or both
	Hello                     // asks for a session
	Challenge                 // asks for the Hello again, with a cookie
	Welcome                   // grants the session
	Reset                     // the token of a packet is not known
	Probe                     // asks for an Echo, by the same sub-flow
	Echo                      // the reply to a Probe
	typeEnd
)

// Flags of the header.
const (
	hasResponse = 1 << iota
	hasPart
	respondNow
	hasCredit
	more
	waits
	flagEnd
)

// Lengths.
const (
	HeaderLen    = 28
	greetingLen  = 76
	WelcomeLen   = 36
	challengeLen = 16
	resetLen     = 8
	echoLen      = 8
	CreditLen    = 8
	responseLen  = 24
	PartLen      = 20

	// Window is how many numbers of a flow can be in use: from the first that is not
	// settled to the last one. It is the length of the mask of a response.
	Window       = 512
	SeenWords    = Window / 64
	RefusedWords = Window / 64

	// Overhead is what the header, a part and a greeting need, or credit and a response
	// without refusals that names 256 numbers. A longer one goes in a packet of its own.
	Overhead = HeaderLen + greetingLen + PartLen
	// MaxHeaders is the largest length of everything in front of the bytes of a message.
	MaxHeaders = HeaderLen + greetingLen + CreditLen + responseLen + 8*SeenWords + 8*RefusedWords + PartLen
)

// ErrMalformed is the error of all decoders. It does not say which rule was broken.
var ErrMalformed = errors.New("malformed packet")

// Addr is the address at which an endpoint receives.
type Addr struct {
	GID  [16]byte
	QPN  uint32
	QKey uint32
}

// Packet is a decoded packet. Only the sections that it has are valid.
type Packet struct {
	Type       Type
	RespondNow bool   // the sender waits for the response
	More       bool   // another part of the flow was sent right behind this one
	Waits      bool   // the sender has more to send than it was granted
	SubFlow    uint8  // by which it came: a path
	SubSeq     uint16 // its number in the sub-flow
	Heard      uint16 // bit i: something came by the receiver's path i since the sender's last packet
	Slot       uint32 // of the sender, for a Reset
	VTag       uint32 // tells the sender's packets from those of its predecessors
	Token      uint64 // that the receiver gave out; 0 in a Hello
	Stamp      uint32 // the sender's clock, in microseconds

	Greeting  Greeting
	Welcome   Granted
	Challenge Challenged
	Reset     uint64 // the token that is not known
	Echo      Echoed

	HasCredit   bool
	Credit      Credit
	HasResponse bool
	Response    Response
	HasPart     bool
	Part        Part
	Bytes       []byte // of the part; refers to the decoded packet
}

// Credit gives a sender, over a device that loses nothing, the number of packets that there
// are buffers for.
type Credit struct {
	Taken uint32 // packets with a part that came in this session
	Grant uint16 // how many more than these may be under way
}

// Response lists the packets of a flow that arrived.
type Response struct {
	Service   uint8
	HasEcho   bool
	Grant     uint16 // packets that may be under way
	Pressure  uint8  // how much of the receiver's memory is in use, of 255
	EchoPath  uint8
	Base      uint32 // all packets before it arrived
	Floor     uint32 // of the mask of refusals
	EchoStamp uint32 // Stamp of the packet that arrived last
	Delay     uint32 // microseconds since then
	NSeen     uint8
	NRefused  uint8
	Seen      [SeenWords]uint64    // bit i: Base+i arrived
	Refused   [RefusedWords]uint64 // bit i: Floor+i was refused
}

// Part is a piece of a message, or says that the sender gave the message up.
type Part struct {
	Service  uint8
	Cancel   bool
	Seq      uint32
	Floor    uint32 // all before it is settled: the sender never sends it again
	Index    uint32 // of the piece; the message's first packet has the number Seq-Index
	Total    uint32 // bytes of the message
	Fragment uint16 // bytes of each piece but the last
}

// Count returns how many packets a message has.
func Count(total uint32, fragment uint16) uint32 {
	if total == 0 {
		return 1
	}
	return uint32((uint64(total) + uint64(fragment) - 1) / uint64(fragment))
}

// Offset and Length return the range of its message that a part has.
func (p *Part) Offset() int { return int(p.Index) * int(p.Fragment) }
func (p *Part) Length() int {
	if p.Cancel {
		return 0
	}
	return int(min(uint64(p.Total)-uint64(p.Index)*uint64(p.Fragment), uint64(p.Fragment)))
}

var be = binary.BigEndian

// Services is the number of services; the engine defines them.
const Services = 3

func flag(set bool, bit byte) byte {
	if set {
		return bit
	}
	return 0
}

// Encode writes everything of the packet but the bytes of its part, and returns the
// length. b has room for MaxHeaders.
func (p *Packet) Encode(b []byte) int {
	_ = b[MaxHeaders-1]
	b[0] = Version<<4 | byte(p.Type)
	b[1] = flag(p.HasResponse, hasResponse) | flag(p.HasPart, hasPart) | flag(p.RespondNow, respondNow) | flag(p.HasCredit, hasCredit) | flag(p.More, more) | flag(p.Waits, waits)
	b[2], b[3] = p.SubFlow, 0
	be.PutUint64(b[4:], p.Token)
	be.PutUint32(b[12:], p.Stamp)
	be.PutUint16(b[16:], p.SubSeq)
	be.PutUint16(b[18:], p.Heard)
	be.PutUint32(b[20:], p.Slot)
	be.PutUint32(b[24:], p.VTag)
	n := HeaderLen
	switch p.Type {
	case Hello:
		p.Greeting.encode(b[n:])
		n += greetingLen
	case Welcome:
		p.Welcome.encode(b[n:])
		n += WelcomeLen
	case Challenge:
		p.Challenge.encode(b[n:])
		n += challengeLen
	case Reset:
		be.PutUint64(b[n:], p.Reset)
		n += resetLen
	case Echo:
		p.Echo.encode(b[n:])
		n += echoLen
	}
	if p.HasCredit {
		p.Credit.encode(b[n:])
		n += CreditLen
	}
	if p.HasResponse {
		n += p.Response.encode(b[n:])
	}
	if p.HasPart {
		p.Part.encode(b[n:])
		n += PartLen
	}
	return n
}

// Decode decodes a packet, which may have any contents.
func (p *Packet) Decode(b []byte) error {
	if len(b) < HeaderLen || b[0]>>4 != Version {
		return ErrMalformed
	}
	p.Type = Type(b[0] & 15)
	flags := b[1]
	if p.Type == 0 || p.Type >= typeEnd || flags >= flagEnd || b[3] != 0 {
		return ErrMalformed
	}
	p.HasResponse, p.HasPart, p.RespondNow = flags&hasResponse != 0, flags&hasPart != 0, flags&respondNow != 0
	p.HasCredit, p.More, p.Waits = flags&hasCredit != 0, flags&more != 0, flags&waits != 0
	p.SubFlow = b[2]
	p.Token = be.Uint64(b[4:])
	p.Stamp = be.Uint32(b[12:])
	p.SubSeq, p.Heard = be.Uint16(b[16:]), be.Uint16(b[18:])
	p.Slot = be.Uint32(b[20:])
	p.VTag = be.Uint32(b[24:])
	rest := b[HeaderLen:]
	if p.Type == Flow && !p.HasResponse && !p.HasPart && !p.HasCredit {
		return ErrMalformed
	}
	own := [typeEnd]int{Hello: greetingLen, Welcome: WelcomeLen, Challenge: challengeLen, Reset: resetLen, Echo: echoLen}[p.Type]
	if len(rest) < own || flags != 0 && (p.Type == Challenge || p.Type == Reset || p.Type == Probe || p.Type == Echo) {
		return ErrMalformed
	}
	switch p.Type {
	case Hello:
		if !p.Greeting.decode(rest) {
			return ErrMalformed
		}
	case Welcome:
		if !p.Welcome.decode(rest) {
			return ErrMalformed
		}
	case Challenge:
		p.Challenge.decode(rest)
	case Reset:
		p.Reset = be.Uint64(rest)
	case Echo:
		if !p.Echo.decode(rest) {
			return ErrMalformed
		}
	}
	rest = rest[own:]
	if p.HasCredit {
		if !p.Credit.decode(rest) {
			return ErrMalformed
		}
		rest = rest[CreditLen:]
	}
	if p.HasResponse {
		n, ok := p.Response.decode(rest)
		if !ok {
			return ErrMalformed
		}
		rest = rest[n:]
	}
	p.Bytes = nil
	switch {
	case p.HasPart:
		if !p.Part.decode(rest) {
			return ErrMalformed
		}
		p.Bytes = rest[PartLen:]
	case len(rest) != 0:
		return ErrMalformed
	}
	return nil
}

func (r *Response) encode(b []byte) int {
	b[0] = r.Service
	b[1] = flag(r.HasEcho, 1)
	b[2], b[3] = r.NSeen, r.NRefused
	be.PutUint16(b[4:], r.Grant)
	b[6], b[7] = r.Pressure, r.EchoPath
	be.PutUint32(b[8:], r.Base)
	be.PutUint32(b[12:], r.Floor)
	be.PutUint32(b[16:], r.EchoStamp)
	be.PutUint32(b[20:], r.Delay)
	n := responseLen
	for i := range r.NSeen {
		be.PutUint64(b[n:], r.Seen[i])
		n += 8
	}
	for i := range r.NRefused {
		be.PutUint64(b[n:], r.Refused[i])
		n += 8
	}
	return n
}

// Len returns the length of the encoded response in bytes.
func (r *Response) Len() int { return responseLen + 8*int(r.NSeen) + 8*int(r.NRefused) }

func (r *Response) decode(b []byte) (n int, ok bool) {
	if len(b) < responseLen || b[0] >= Services || b[1] > 1 || b[2] > SeenWords || b[3] > RefusedWords {
		return 0, false
	}
	r.Service, r.HasEcho = b[0], b[1] != 0
	r.NSeen, r.NRefused = b[2], b[3]
	r.Grant = be.Uint16(b[4:])
	r.Pressure, r.EchoPath = b[6], b[7]
	r.Base = be.Uint32(b[8:])
	r.Floor = be.Uint32(b[12:])
	r.EchoStamp = be.Uint32(b[16:])
	r.Delay = be.Uint32(b[20:])
	if n = r.Len(); len(b) < n {
		return 0, false
	}
	b = b[responseLen:]
	for i := range r.NSeen {
		r.Seen[i] = be.Uint64(b)
		b = b[8:]
	}
	for i := range r.NRefused {
		r.Refused[i] = be.Uint64(b)
		b = b[8:]
	}
	return n, true
}

func (p *Part) encode(b []byte) {
	b[0], b[1] = p.Service, flag(p.Cancel, 1)
	be.PutUint16(b[2:], p.Fragment)
	be.PutUint32(b[4:], p.Seq)
	be.PutUint32(b[8:], p.Floor)
	be.PutUint32(b[12:], p.Index)
	be.PutUint32(b[16:], p.Total)
}

func (p *Part) decode(b []byte) bool {
	if len(b) < PartLen || b[0] >= Services || b[1] > 1 {
		return false
	}
	p.Service, p.Cancel = b[0], b[1] != 0
	p.Fragment = be.Uint16(b[2:])
	p.Seq = be.Uint32(b[4:])
	p.Floor = be.Uint32(b[8:])
	p.Index = be.Uint32(b[12:])
	p.Total = be.Uint32(b[16:])
	return p.Fragment > 0 && p.Index < Count(p.Total, p.Fragment) && p.Length() == len(b)-PartLen
}
