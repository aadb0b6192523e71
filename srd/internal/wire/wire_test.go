package wire

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

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

func encode(p *Packet) []byte {
	b := make([]byte, MaxHeaders)
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
	require.NotEqual(t, mac, Seal(Key{1, 2}, &Addr{QPN: 2}, b, []byte("abc")))
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
