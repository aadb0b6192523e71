package greet

import (
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// A greeting of version 1 with this package's test key, as it was recorded. It must stay valid.
const (
	goldenHello     = "e79e4eca01006700000000000000000001040b00100000000000000000000000000000000000000000000000000000000000001fc00000000000000000000000000000cf00000000000000000000ffff0a000001391d000073686f706361636865313a37343831"
	goldenChallenge = "e79e4eca01003400000000000000000002000000200000000000000000000000000000000000000000000000000000000000002f"
	goldenProof     = "a810c3a9fc5972ecefef1214ac446bd3df0e6f3ae2f7d0479e7b293bc00b6109"
	goldenVerdict   = "e79e4eca0100340000000000000000000100000041274ddcc6d57e68c408da95f25672924dc97cb9cac2a76197e1d8f58e848d43"
	goldenSeal      = "1f06e6f47f12e35f0ac8e3f4e7c1f88c1b3f795279e08af70ea2a3a7a63c847a" // of "said", by the client
)

func golden(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

// Clients and servers of version 1 are understood, and are told what they understand.
func TestGreetingOfVersion1(t *testing.T) {
	hello, challenge, proof, verdict := golden(t, goldenHello), golden(t, goldenChallenge), golden(t, goldenProof), golden(t, goldenVerdict)
	h, err := ReadHello(hello)
	require.NoError(t, err)
	want := Hello{Transport: RDMA, Tenant: "shop", Server: "cache1:7481", Address: at, Client: [16]byte{0: 0xc0, 15: 0xcf}, Nonce: [nonceSize]byte{0: 0x10, 31: 0x1f}}
	require.Equal(t, want, h)

	// Its client here.
	s := NewServer(hello, key)
	s.challenge = challenge
	require.NoError(t, s.HandleProof(proof))
	require.NoError(t, s.Seal().Check([]byte("said"), [SealSize]byte(golden(t, goldenSeal))))
	for _, said := range [][]byte{NewServer(hello, key).Challenge(), NewServer(hello, nil).Challenge(), s.Last(nil), s.Last(ErrFull), s.Last(ErrDenied), Later()} {
		require.Equal(t, len(challenge), len(said), "what version 1 knows of an answer")
		require.Equal(t, challenge[:4], said[:4])
		require.Zero(t, binary.LittleEndian.Uint32(said[12:]), "requires nothing of it")
	}

	// Its server, and a client here.
	c := &Client{key: key, said: want, hello: hello}
	got, err := c.HandleChallenge(challenge)
	require.NoError(t, err)
	require.Equal(t, proof, got)
	require.NoError(t, c.HandleVerdict(verdict))
	now := NewClient(want, key).Hello()
	require.Equal(t, hello[:4], now[:4])
	require.Equal(t, hello[16:20], now[16:20])
	require.Equal(t, hello[52:], now[52:len(hello)], "the rest of a hello is where version 1 has it")
	require.Zero(t, binary.LittleEndian.Uint32(now[12:]), "requires nothing of it")
}

// next makes a message one of a later version, which is longer, and offers and requires features.
func next(b []byte, offered, required Features) []byte {
	b = append(append([]byte(nil), b...), make([]byte, 100)...)
	le := binary.LittleEndian
	le.PutUint16(b[4:], Version+1)
	le.PutUint16(b[6:], uint16(len(b)))
	le.PutUint32(b[8:], uint32(offered))
	le.PutUint32(b[12:], uint32(required))
	return b
}

const unknown = Features(1 << 31)

// What a later version adds and offers is ignored, on either side, and is signed.
func TestGreetingOfTheNextVersion(t *testing.T) {
	h := Hello{Transport: TCP, Tenant: "shop", Server: "cache1:7481"}
	for name, later := range map[string]struct{ client, server bool }{"client": {client: true}, "server": {server: true}, "both": {true, true}} {
		c := NewClient(h, key)
		if later.client {
			c.hello = next(c.hello, unknown, 0)
		}
		got, err := ReadHello(c.Hello())
		require.NoError(t, err, name)
		require.Equal(t, h.Server, got.Server)
		s := NewServer(c.Hello(), key)
		if later.server {
			s.challenge = next(s.challenge, unknown, 0)
		}
		proof, err := c.HandleChallenge(s.Challenge())
		require.NoError(t, err, name)
		require.NoError(t, s.HandleProof(proof), name)
		verdict := s.Last(nil)
		if later.server {
			verdict = next(verdict, unknown, 0)
			require.True(t, IsLater(next(Later(), unknown, 0)))
		}
		require.NoError(t, c.HandleVerdict(verdict), name)
		require.NoError(t, s.Seal().Check([]byte("x"), c.Seal().Of([]byte("x"))), name)
		c.hello[len(c.hello)-1] ^= 1
		require.ErrorIs(t, c.HandleVerdict(verdict), ErrServerUnauthenticated, "what was changed on the way")
	}
}

// What one side requires and the other does not know ends the greeting, and both sides' errors name both
// versions.
func TestMissingFeatures(t *testing.T) {
	c := NewClient(Hello{Transport: TCP, Required: unknown}, key)
	c.hello = next(c.hello, unknown, unknown)
	c.hello[16] = 99 // a transport that only the next version has
	_, err := ReadHello(c.Hello())
	require.Equal(t, &VersionError{Ours: 1, Theirs: 2, Missing: unknown}, err)
	require.EqualError(t, err, "the peer, of version 2, requires features 0x80000000, which this version 1 does not have")
	_, err = c.HandleChallenge(Unable())
	require.Equal(t, &VersionError{Ours: 1, Theirs: 1, Missing: unknown, Peer: true}, err)
	require.EqualError(t, &VersionError{Ours: 2, Theirs: 1, Missing: unknown, Peer: true}, "the peer, of version 1, has no features 0x80000000, which this version 2 requires")

	c = NewClient(Hello{Transport: TCP}, key)
	s := NewServer(c.Hello(), key)
	_, err = c.HandleChallenge(next(s.Challenge(), unknown, unknown))
	require.Equal(t, &VersionError{Ours: 1, Theirs: 2, Missing: unknown}, err)
	require.Equal(t, err, c.HandleVerdict(next(s.Last(nil), unknown, unknown)))
}
