package wire

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The test vector of the authors of SipHash (appendix A).
func TestHash(t *testing.T) {
	var k, m [16]byte
	for i := range k {
		k[i], m[i] = byte(i), byte(i)
	}
	key := Key{binary.LittleEndian.Uint64(k[:]), binary.LittleEndian.Uint64(k[8:])}
	require.Equal(t, uint64(0xa129ca6149be45e5), Hash(key, m[:15]))
}

func random(r *rand.Rand) Packet {
	p := Packet{
		Type: Type(1 + r.IntN(int(typeEnd)-1)), SubFlow: uint8(r.Uint32()), SubSeq: uint16(r.Uint32()), Heard: uint16(r.Uint32()),
		Slot: r.Uint32(), VTag: r.Uint32(), Token: r.Uint64(), Stamp: r.Uint32(),
	}
	switch p.Type {
	case Hello:
		p.Greeting = Greeting{From: Addr{QPN: r.Uint32(), QKey: r.Uint32()}, Epoch: r.Uint64(), Token: r.Uint64(), Stamp: r.Uint64(), Limits: limits(r), Cookie: r.Uint64(), MAC: r.Uint64()}
		p.Greeting.From.GID[r.IntN(16)] = byte(r.Uint32())
	case Welcome:
		p.Welcome = Granted{r.Uint64(), r.Uint64(), r.Uint64(), limits(r)}
	case Challenge:
		p.Challenge = Challenged{r.Uint64(), r.Uint64()}
		return p
	case Reset:
		p.Reset = r.Uint64()
		return p
	case Probe:
		return p
	case Echo:
		p.Echo = Echoed{uint8(r.Uint32()), r.Uint32()}
		return p
	}
	p.RespondNow, p.More, p.Waits = r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0
	if p.HasCredit = r.IntN(2) == 0; p.HasCredit {
		p.Credit = Credit{r.Uint32(), uint16(r.Uint32())}
	}
	if p.HasResponse = r.IntN(2) == 0; p.HasResponse {
		s := &p.Response
		*s = Response{Service: uint8(r.IntN(Services)), HasEcho: r.IntN(2) == 0, Grant: uint16(r.Uint32()),
			Pressure: uint8(r.Uint32()), EchoPath: uint8(r.Uint32()), Base: r.Uint32(), Floor: r.Uint32(), EchoStamp: r.Uint32(), Delay: r.Uint32(),
			NSeen: uint8(r.IntN(SeenWords + 1)), NRefused: uint8(r.IntN(RefusedWords + 1))}
		for i := range s.NSeen {
			s.Seen[i] = r.Uint64()
		}
		for i := range s.NRefused {
			s.Refused[i] = r.Uint64()
		}
	}
	if p.HasPart = r.IntN(2) == 0 || p.Type == Flow && !p.HasResponse && !p.HasCredit; p.HasPart {
		s := &p.Part
		*s = Part{Service: uint8(r.IntN(Services)), Cancel: r.IntN(4) == 0, Seq: r.Uint32(), Floor: r.Uint32(),
			Total: r.Uint32N(10000), Fragment: uint16(1 + r.IntN(3000))}
		s.Index = r.Uint32N(Count(s.Total, s.Fragment))
		p.Bytes = make([]byte, s.Length())
		for i := range p.Bytes {
			p.Bytes[i] = byte(r.Uint32())
		}
	}
	return p
}

func limits(r *rand.Rand) Limits {
	return Limits{MTU: uint16(MinMTU + r.IntN(1<<16-MinMTU)), Complete: uint16(r.Uint32()), Message: r.Uint32(), Remember: r.Uint32()}
}

// Limits with an MTU below MinMTU are malformed.
func TestLimits(t *testing.T) {
	for _, p := range []Packet{
		{Type: Hello, Greeting: Greeting{Limits: Limits{MTU: MinMTU - 1}}},
		{Type: Welcome, Welcome: Granted{Limits: Limits{MTU: MinMTU - 1}}},
	} {
		require.ErrorIs(t, new(Packet).Decode(encode(&p)), ErrMalformed)
	}
}

// encode encodes a packet into memory that has had another one.
func encode(p *Packet) []byte {
	b := bytes.Repeat([]byte{0xaa}, MaxHeaders)
	return append(b[:p.Encode(b)], p.Bytes...)
}

// What is encoded is decoded as it was.
func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		p := random(r)
		var q Packet
		require.NoError(t, q.Decode(encode(&p)))
		if len(q.Bytes) == 0 {
			q.Bytes = p.Bytes
		}
		require.Equal(t, p, q)
	}
}

// Each length of its parts is looked at: a packet that is cut anywhere is refused.
func TestCutPackets(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		p := random(r)
		b := encode(&p)
		cut := r.IntN(len(b))
		if err := new(Packet).Decode(b[:cut]); err == nil {
			t.Fatalf("%+v, cut to %d of %d bytes, is accepted", p, cut, len(b))
		}
		require.Error(t, new(Packet).Decode(append(b, 0)))
	}
}

// What no encoder writes is refused: bits without a meaning, numbers out of range, sections that the type of a
// packet does not have.
func TestMalformed(t *testing.T) {
	const section = HeaderLen // that follows the header
	flow := Packet{Type: Flow, HasPart: true, Part: Part{Fragment: 1}}
	probe, echo, challenge, reset := Packet{Type: Probe}, Packet{Type: Echo}, Packet{Type: Challenge}, Packet{Type: Reset}
	credit := Packet{Type: Flow, HasCredit: true}
	full := Packet{Type: Flow, HasResponse: true, Response: Response{NSeen: SeenWords, NRefused: RefusedWords}, HasPart: true, Part: Part{Fragment: 100, Total: 100}, Bytes: make([]byte, 100)}
	for _, c := range []struct {
		name  string
		p     Packet
		at    int
		value byte
	}{
		{"an older version", flow, 0, (Version-1)<<4 | byte(Flow)},
		{"no type", probe, 0, Version << 4},
		{"an unknown type", probe, 0, Version<<4 | byte(typeEnd)},
		{"an unknown flag", flow, 1, hasPart | flagEnd},
		{"an unknown flag alone", Packet{Type: Hello, Greeting: Greeting{Limits: Limits{MTU: MinMTU}}}, 1, flagEnd},
		{"a part where a response should be", flow, 1, hasResponse | hasPart},
		{"a flag of a Probe", probe, 1, respondNow},
		{"a flag of an Echo", echo, 1, more},
		{"a flag of a Challenge", challenge, 1, waits},
		{"a flag of a Reset", reset, 1, respondNow},
		{"a byte of the header", flow, 3, 1},
		{"a byte of an Echo", echo, section + 1, 1},
		{"a byte of an Echo", echo, section + 2, 1},
		{"a byte of an Echo", echo, section + 3, 1},
		{"a byte of credit", credit, section + 6, 1},
		{"a byte of credit", credit, section + 7, 1},
		{"the service of a response", full, section, Services},
		{"a flag of a response", full, section + 1, 2},
		{"a longer mask", full, section + 2, SeenWords + 1},
		{"a longer mask of refusals", full, section + 3, RefusedWords + 1},
		{"the service of a part", flow, section, Services},
		{"a flag of a part", flow, section + 1, 2},
		{"a fragment of no bytes", flow, section + 3, 0},
		{"a piece behind the last", flow, section + 15, 1},
	} {
		b := encode(&c.p)
		require.NoError(t, new(Packet).Decode(b), c.name)
		b[c.at] = c.value
		require.ErrorIs(t, new(Packet).Decode(b), ErrMalformed, c.name)
	}
	// A message of one whole fragment has no second piece, though that had a length of 0.
	second := Packet{Type: Flow, HasPart: true, Part: Part{Index: 1, Total: 10, Fragment: 10}}
	require.ErrorIs(t, new(Packet).Decode(encode(&second)), ErrMalformed)
}

// The bytes of a part are those of the packet that was decoded last.
func TestBytesOfAnEarlierPacket(t *testing.T) {
	var p Packet
	require.NoError(t, p.Decode(encode(&Packet{Type: Flow, HasPart: true, Part: Part{Total: 3, Fragment: 10}, Bytes: []byte("abc")})))
	require.Equal(t, "abc", string(p.Bytes))
	require.NoError(t, p.Decode(encode(&Packet{Type: Probe})))
	require.Empty(t, p.Bytes)
}

// A mask has what was put in and not taken out, and its words are the bits from any number on, also where
// numbers begin anew.
func TestMask(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, first := range []uint32{0, 64, 1000, 1<<32 - 100} {
		var m Mask
		in := make(map[uint32]bool)
		for range 3 * Window {
			seq := first + r.Uint32N(Window)
			if in[seq] = r.IntN(2) == 0; in[seq] {
				m.Set(seq)
			} else {
				m.Drop(seq)
			}
		}
		var words [SeenWords]uint64
		m.Words(first, &words)
		for i := range uint32(Window) {
			require.Equal(t, in[first+i], m.Has(first+i))
			require.Equal(t, in[first+i], words[i/64]>>(i%64)&1 != 0, "%d", i)
		}
	}
}

// Words behind the last bit that is set are not sent.
func TestWordsOfAMask(t *testing.T) {
	const first = 1000
	for i := range uint32(Window) {
		var m Mask
		var words [SeenWords]uint64
		require.Zero(t, m.Words(first, &words))
		m.Set(first)
		m.Set(first + i)
		require.EqualValues(t, i/64+1, m.Words(first, &words))
	}
}

// Limits beyond the range of their fields are sent as the largest value.
func TestLimitsOf(t *testing.T) {
	require.Equal(t, Limits{MTU: 1500, Complete: 2, Message: 5000, Remember: 3_000_000}, LimitsOf(1500, 5000, 3*time.Second, 2*time.Millisecond))
	require.Equal(t, Limits{1<<16 - 1, 1<<16 - 1, 1<<32 - 1, 1<<32 - 1}, LimitsOf(1<<16, 1<<32, 2*time.Hour, time.Hour))
}

// A message's pieces cover its bytes once.
func TestParts(t *testing.T) {
	for _, total := range []uint32{0, 1, 99, 100, 101, 1000, 1<<32 - 1} {
		const fragment = 100
		n := Count(total, fragment)
		last := Part{Index: n - 1, Total: total, Fragment: fragment}
		require.EqualValues(t, total, last.Offset()+last.Length())
		if n > 1 {
			require.Equal(t, fragment, (&Part{Index: n - 2, Total: total, Fragment: fragment}).Length())
		}
		require.Zero(t, (&Part{Cancel: true, Total: total, Fragment: fragment}).Length())
	}
}

// A seal holds for its bytes, address and key alone.
func TestSeal(t *testing.T) {
	p := Packet{Type: Hello, Greeting: Greeting{Limits: Limits{MTU: MinMTU}}, HasPart: true, Part: Part{Total: 3, Fragment: 10}}
	b := encode(&p)
	to := Addr{QPN: 1}
	mac := Seal(Key{1, 2}, &to, b, []byte("abc"))
	SetMAC(b, mac)
	require.NoError(t, p.Decode(append(bytes.Clone(b), "abc"...)))
	require.Equal(t, mac, p.Greeting.MAC)
	require.Equal(t, mac, Seal(Key{1, 2}, &to, b, []byte("abc")))
	require.NotEqual(t, mac, Seal(Key{1, 3}, &to, b, []byte("abc")))
	for _, other := range []Addr{{QPN: 2}, {QPN: 1, QKey: 1}, {QPN: 1, GID: [16]byte{15: 1}}} {
		require.NotEqual(t, mac, Seal(Key{1, 2}, &other, b, []byte("abc")))
	}
	require.NotEqual(t, mac, Seal(Key{1, 2}, &to, b, []byte("abd")))
	for i := range b {
		c := bytes.Clone(b)
		c[i] ^= 4
		got := Seal(Key{1, 2}, &to, c, []byte("abc"))
		if i >= macOffset && i < macOffset+8 {
			require.Equal(t, mac, got)
		} else {
			require.NotEqual(t, mac, got, "byte %d", i)
		}
	}
}

// Nothing panics, and what is accepted encodes to the same bytes.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		p := random(r)
		f.Add(encode(&p))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Packet
		if p.Decode(b) == nil {
			require.Equal(t, b, encode(&p))
		}
	})
}

// A packet with nothing in it is none: a reply to a refused packet has no more bytes.
func TestEmpty(t *testing.T) {
	empty := Packet{Type: Flow}
	require.Error(t, new(Packet).Decode(encode(&empty)))
	flow := Packet{Type: Flow, HasResponse: true}
	require.GreaterOrEqual(t, len(encode(&flow)), len(encode(&Packet{Type: Reset})))
	require.GreaterOrEqual(t, len(encode(&Packet{Type: Hello})), len(encode(&Packet{Type: Challenge})))
}

// What goes in front of the bytes of a message fits.
func TestLengths(t *testing.T) {
	b := make([]byte, MaxHeaders)
	hello := Packet{Type: Hello, HasPart: true}
	require.LessOrEqual(t, hello.Encode(b), Overhead)
	most := Response{NSeen: 256 / 64}
	flow := Packet{Type: Flow, HasPart: true, HasResponse: true, Response: most}
	require.LessOrEqual(t, flow.Encode(b), Overhead)
	credit := Packet{Type: Flow, HasPart: true, HasCredit: true, HasResponse: true, Response: most}
	require.LessOrEqual(t, credit.Encode(b), Overhead)
	full := Response{NSeen: SeenWords, NRefused: RefusedWords}
	all := Packet{Type: Hello, HasCredit: true, HasPart: true, HasResponse: true, Response: full}
	require.Equal(t, MaxHeaders, all.Encode(b))
	alone := Packet{Type: Flow, HasResponse: true, Response: full}
	require.LessOrEqual(t, alone.Encode(b), 256, "the smallest MTU")
}
