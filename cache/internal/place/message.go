package place

import (
	"encoding/binary"
	"fmt"
)

// MaxMessage is the length of the longest message in bytes.
const MaxMessage = 16 << 10

// Message is the placement as a server sends it to its clients, with the shards that they may READ
// there. Servers are without ids, boots and zones, shards without Handed.
type Message struct {
	Placement
	Server   uint8  // the number of the server that sends it; 0: it is no member
	Version  uint32 // of Readable, which rises with each change of it
	Readable []bool // by shard
}

// The message is 28 bytes, then the members, then 6 bytes for each shard; little endian.
const (
	messageFixed    = 28
	messageServer   = 4 // and the address
	messageShard    = 6
	messageReadable = 1
)

// messageLength returns the length of a message with the placement.
func (p *Placement) messageLength() int {
	n := messageFixed + messageShard*len(p.Shards)
	for s := range p.Members() {
		n += messageServer + len(s.Address)
	}
	return n
}

// Append appends the message to dst. The placement must pass [Placement.Check]. Servers that are gone
// are left out.
func (m *Message) Append(dst []byte) []byte {
	le := binary.LittleEndian
	dst = append(dst, m.Cluster[:]...)
	dst = le.AppendUint32(dst, m.Epoch)
	dst = le.AppendUint32(dst, m.Version)
	count := byte(0)
	for range m.Members() {
		count++
	}
	dst = append(dst, m.Server, count)
	dst = le.AppendUint16(dst, uint16(len(m.Shards)))
	for s := range m.Members() {
		dst = append(dst, s.Number, byte(s.State), s.Weight, byte(len(s.Address)))
		dst = append(dst, s.Address...)
	}
	for i, s := range m.Shards {
		bits := byte(0)
		if m.Readable[i] {
			bits = messageReadable
		}
		dst = append(dst, s.Owner, bits)
		dst = le.AppendUint32(dst, s.Epoch)
	}
	return dst
}

// Decode reads a message that Append has written. It refuses any other bytes with an error that
// matches [ErrPlacement], and then m is of no use. It keeps nothing of src.
func (m *Message) Decode(src []byte) error {
	if len(src) < messageFixed || len(src) > MaxMessage {
		return fmt.Errorf("%w: %d bytes", ErrPlacement, len(src))
	}
	le := binary.LittleEndian
	*m = Message{Version: le.Uint32(src[20:]), Server: src[24], Readable: make([]bool, Shards)}
	copy(m.Cluster[:], src)
	m.Epoch = le.Uint32(src[16:])
	count, shards := int(src[25]), le.Uint16(src[26:])
	rest, err := m.decodeServers(src[messageFixed:], count)
	switch {
	case err != nil:
		return err
	case shards != Shards || len(rest) != Shards*messageShard:
		return fmt.Errorf("%w: %d shards in %d bytes", ErrPlacement, shards, len(rest))
	}
	return m.decodeShards(rest)
}

// decodeServers reads count servers, and returns what follows.
func (m *Message) decodeServers(b []byte, count int) (rest []byte, err error) {
	last := uint8(0)
	for range count {
		if len(b) < messageServer || len(b) < messageServer+int(b[3]) {
			return nil, fmt.Errorf("%w: no room for %d servers", ErrPlacement, count)
		}
		length := messageServer + int(b[3])
		s := Server{Number: b[0], State: State(b[1]), Weight: b[2], Address: string(b[messageServer:length])}
		if s.Number <= last || s.State == Gone {
			return nil, fmt.Errorf("%w: server %d with state %d follows %d", ErrPlacement, s.Number, s.State, last)
		}
		if err := s.check(); err != nil {
			return nil, err
		}
		m.Servers = append(m.Servers, s)
		last, b = s.Number, b[length:]
	}
	if m.Server != 0 && m.Member(m.Server) == nil {
		return nil, fmt.Errorf("%w: its server %d is not in it", ErrPlacement, m.Server)
	}
	return b, nil
}

// decodeShards reads the shards. Only those of the server that sends them can be readable.
func (m *Message) decodeShards(b []byte) error {
	var member [256]bool
	for s := range m.Members() {
		member[s.Number] = true
	}
	m.Shards = make([]Shard, Shards)
	for i := range m.Shards {
		e := b[i*messageShard:]
		s := Shard{Owner: e[0], Epoch: binary.LittleEndian.Uint32(e[2:])}
		m.Readable[i] = e[1] == messageReadable
		owned := s.Owner != 0 && member[s.Owner] && s.Epoch != 0
		if e[1]&^messageReadable != 0 || s.Owner != 0 && !owned || m.Readable[i] && (!owned || s.Owner != m.Server) || s.Epoch > m.Epoch {
			return fmt.Errorf("%w: shard %d has owner %d, bits %#x and epoch %d", ErrPlacement, i, s.Owner, e[1], s.Epoch)
		}
		m.Shards[i] = s
	}
	return nil
}
