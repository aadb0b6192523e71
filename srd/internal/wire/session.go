package wire

import "time"

// Limits are the limits of an endpoint that it sends to its peers.
type Limits struct {
	MTU      uint16 // bytes of the longest packet that its link carries, headers included
	Complete uint16 // milliseconds for which it has run and forgotten no peer
	Message  uint32 // bytes of the longest message that it takes
	Remember uint32 // microseconds for which it remembers a silent peer at least
}

// NoLimits are those of a peer that has not told its own.
var NoLimits = Limits{Message: 1<<32 - 1}

// LimitsOf returns limits in the units of packets; values beyond their range become the largest.
func LimitsOf(mtu, message int, remember, complete time.Duration) Limits {
	return Limits{MTU: uint16(min(mtu, 1<<16-1)), Complete: uint16(min(complete/time.Millisecond, 1<<16-1)), Message: uint32(min(uint64(message), 1<<32-1)),
		Remember: uint32(min(remember/time.Microsecond, 1<<32-1))}
}

// MinMTU is the smallest MTU of InfiniBand, and SmallMTU the one that fits into the usual
// MTU of an Ethernet.
const (
	MinMTU   = 256
	SmallMTU = 1024
)

func (l *Limits) encode(b []byte) {
	be.PutUint16(b, l.MTU)
	be.PutUint16(b[2:], l.Complete)
	be.PutUint32(b[4:], l.Message)
	be.PutUint32(b[8:], l.Remember)
}

func (l *Limits) decode(b []byte) bool {
	l.MTU, l.Complete, l.Message, l.Remember = be.Uint16(b), be.Uint16(b[2:]), be.Uint32(b[4:]), be.Uint32(b[8:])
	return l.MTU >= MinMTU
}

// Greeting describes the sender of a Hello.
type Greeting struct {
	From  Addr
	Epoch uint64 // of the sender: a later one is another life
	Token uint64 // that replies have to carry
	// Stamp is the sender's wall clock in nanoseconds; each of its greetings has a
	// later one.
	Stamp  uint64
	Limits Limits
	Cookie uint64 // of a Challenge, or 0
	MAC    uint64 // over the whole packet, or 0
}

// HelloLen is the length of a Hello's headers up to the MAC, which is the last of them, if nothing
// else is in the packet.
const HelloLen = HeaderLen + greetingLen

const macOffset = HelloLen - 8

func (g *Greeting) encode(b []byte) {
	copy(b, g.From.GID[:])
	be.PutUint32(b[16:], g.From.QPN)
	be.PutUint32(b[20:], g.From.QKey)
	be.PutUint64(b[24:], g.Epoch)
	be.PutUint64(b[32:], g.Token)
	be.PutUint64(b[40:], g.Stamp)
	g.Limits.encode(b[48:])
	be.PutUint64(b[60:], g.Cookie)
	be.PutUint64(b[68:], g.MAC)
}

func (g *Greeting) decode(b []byte) bool {
	copy(g.From.GID[:], b)
	g.From.QPN = be.Uint32(b[16:])
	g.From.QKey = be.Uint32(b[20:])
	g.Epoch = be.Uint64(b[24:])
	g.Token = be.Uint64(b[32:])
	g.Stamp = be.Uint64(b[40:])
	g.Cookie = be.Uint64(b[60:])
	g.MAC = be.Uint64(b[68:])
	return g.Limits.decode(b[48:])
}

// Granted is the section of a Welcome.
type Granted struct {
	Epoch  uint64 // of the responder
	Token  uint64 // that packets to it have to carry
	Hello  uint64 // Epoch of the Hello that it replies to
	Limits Limits
}

func (g *Granted) encode(b []byte) {
	be.PutUint64(b, g.Epoch)
	be.PutUint64(b[8:], g.Token)
	be.PutUint64(b[16:], g.Hello)
	g.Limits.encode(b[24:])
}

func (g *Granted) decode(b []byte) bool {
	g.Epoch, g.Token, g.Hello = be.Uint64(b), be.Uint64(b[8:]), be.Uint64(b[16:])
	return g.Limits.decode(b[24:])
}

// Challenged is the section of a Challenge.
type Challenged struct {
	Cookie uint64
	Known  uint64 // the last epoch of the sender that the responder knows, or 0
}

func (c *Challenged) encode(b []byte) {
	be.PutUint64(b, c.Cookie)
	be.PutUint64(b[8:], c.Known)
}

func (c *Challenged) decode(b []byte) { c.Cookie, c.Known = be.Uint64(b), be.Uint64(b[8:]) }

// Echoed names the Probe that an Echo replies to.
type Echoed struct {
	Path  uint8
	Stamp uint32
}

func (e *Echoed) encode(b []byte) {
	clear(b[:echoLen])
	b[0] = e.Path
	be.PutUint32(b[4:], e.Stamp)
}

func (e *Echoed) decode(b []byte) bool {
	e.Path, e.Stamp = b[0], be.Uint32(b[4:])
	return b[1] == 0 && b[2] == 0 && b[3] == 0
}

func (c *Credit) encode(b []byte) {
	be.PutUint32(b, c.Taken)
	be.PutUint16(b[4:], c.Grant)
	be.PutUint16(b[6:], 0)
}

func (c *Credit) decode(b []byte) bool {
	if len(b) < CreditLen || b[6] != 0 || b[7] != 0 {
		return false
	}
	c.Taken, c.Grant = be.Uint32(b), be.Uint16(b[4:])
	return true
}
