package greet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

var (
	key = []byte("a key of sixteen")
	at  = netip.MustParseAddrPort("10.0.0.1:7481")
)

// greeting is one, from a client with one key to a server with another.
func greeting(t *testing.T, tenant string, theirs, ours []byte, room bool) (client, server error) {
	t.Helper()
	c := NewClient(Hello{Transport: TCP, Tenant: tenant}, theirs)
	h, err := ReadHello(c.Hello())
	require.NoError(t, err)
	require.Equal(t, tenant, h.Tenant)
	require.Equal(t, TCP, h.Transport)
	s := NewServer(c.Hello(), ours)
	proof, err := c.HandleChallenge(s.Challenge())
	if err != nil || proof == nil {
		require.Equal(t, s.Open(), err == nil || err == ErrServerUnauthenticated)
		return err, nil
	}
	require.Len(t, proof, ProofSize)
	if server = s.HandleProof(proof); server == nil && !room {
		server = ErrFull
	}
	verdict := s.Last(server)
	return c.HandleVerdict(verdict), server
}

// A client with the key is admitted, and no other; a client with a key is admitted nowhere else.
func TestGreeting(t *testing.T) {
	other := []byte("another sixteen.")
	for name, c := range map[string]struct {
		tenant         string
		theirs, ours   []byte
		full           bool
		client, server error
	}{
		"everybody":                {},
		"the key":                  {theirs: key, ours: key},
		"the longest name":         {tenant: strings.Repeat("n", MaxName), theirs: key, ours: key},
		"another key":              {theirs: other, ours: key, client: ErrDenied, server: ErrDenied},
		"no key":                   {ours: key, client: ErrKeyWanted},
		"a server without the key": {theirs: key, client: ErrServerUnauthenticated},
		"no room":                  {theirs: key, ours: key, full: true, client: ErrFull, server: ErrFull},
		"no room, no key":          {theirs: other, ours: key, full: true, client: ErrDenied, server: ErrDenied},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := greeting(t, c.tenant, c.theirs, c.ours, !c.full)
			require.Equal(t, c.client, client)
			require.Equal(t, c.server, server)
		})
	}
}

// What was heard on the wire is of no use: neither a client's proof to a client or a server
// later, nor a server's.
func TestProofsAreGoodOnce(t *testing.T) {
	c := NewClient(Hello{Transport: RDMA, Tenant: "tenant", Server: "a:7"}, key)
	s := NewServer(c.Hello(), key)
	proof, err := c.HandleChallenge(s.Challenge())
	require.NoError(t, err)
	require.NoError(t, s.HandleProof(proof))
	verdict := s.Last(nil)
	require.NoError(t, c.HandleVerdict(verdict))
	require.False(t, bytes.Contains(bytes.Join([][]byte{c.Hello(), s.Challenge(), proof, verdict}, nil), key))
	require.NotContains(t, string(verdict), string(proof), "what a client says is no server's proof")

	again := NewServer(c.Hello(), key)
	require.NotEqual(t, s.Challenge(), again.Challenge())
	require.ErrorIs(t, again.HandleProof(proof), ErrDenied, "a proof again")

	next := NewClient(Hello{Transport: RDMA, Tenant: "tenant"}, key)
	require.NotEqual(t, c.Hello(), next.Hello())
	_, err = next.HandleChallenge(s.Challenge())
	require.NoError(t, err)
	require.ErrorIs(t, next.HandleVerdict(verdict), ErrServerUnauthenticated, "a verdict again")
	require.ErrorIs(t, c.HandleVerdict(newReply(come, proof, "")), ErrServerUnauthenticated, "the client's own proof")

	// What is signed has the tenant, the transport and the server.
	for i, other := range []Hello{{Transport: RDMA, Tenant: "tenanu", Server: "a:7"}, {Transport: TCP, Tenant: "tenant", Server: "a:7"}, {Transport: RDMA, Tenant: "tenant", Server: "b:7"}} {
		h, err := ReadHello(c.Hello())
		require.NoError(t, err)
		other.Nonce = h.Nonce
		moved := &Server{key: key, hello: other.append(nil), challenge: s.challenge}
		require.ErrorIs(t, moved.HandleProof(proof), ErrDenied, i)
	}
}

// An open server has no key that could be proved.
func TestOpenServerTakesNoProof(t *testing.T) {
	c := NewClient(Hello{Transport: RDMA}, nil)
	s := NewServer(c.Hello(), nil)
	require.ErrorIs(t, s.HandleProof(sign(nil, byClient, s.hello, s.challenge)), ErrDenied)
}

// Whatever comes is taken as it is meant, or refused.
func TestHostileBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.New(t), 0))
	good := NewClient(Hello{Transport: RDMA, Tenant: "tenant", Server: "cache1:7481", Address: at}, key).Hello()
	for i := range 20_000 {
		b := bytes.Clone(good)
		for range 1 + rng.IntN(3) {
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		}
		switch i % 4 {
		case 0:
			b = b[:rng.IntN(len(b))]
		case 1:
			b = append(b, make([]byte, 1+rng.IntN(8))...)
		}
		h, err := ReadHello(b)
		if err != nil {
			require.Equal(t, Hello{}, h)
			continue
		}
		again, err := ReadHello(h.append(nil))
		require.NoError(t, err)
		require.Equal(t, h, again)
	}
	for _, transport := range []byte{0, byte(DC) + 1, 255} {
		b := bytes.Clone(good)
		b[16] = transport
		_, err := ReadHello(b)
		require.Equal(t, ErrMalformed, err, "transport %d", transport)
	}
	for _, b := range [][]byte{(&Hello{Transport: TCP, Tenant: strings.Repeat("n", MaxName+1)}).append(nil), (&Hello{Transport: TCP, Server: strings.Repeat("n", MaxServer+1)}).append(nil)} {
		_, err := ReadHello(b)
		require.Equal(t, ErrMalformed, err)
	}
	c := NewClient(Hello{Transport: RDMA, Tenant: "tenant"}, key)
	s := NewServer(c.Hello(), key)
	for i := range 8 {
		b := bytes.Clone(s.Challenge())
		b[i] ^= 0x81
		_, err := c.HandleChallenge(b)
		require.Equal(t, i == 4 || i == 5, err == nil, "byte %d: the version alone says nothing", i)
	}
	for _, b := range [][]byte{nil, s.Challenge()[:replySize-1], append(s.Challenge(), 0), newReply(denied, nil, ""), newReply(statuses, nil, ""), newReply(0, nil, "")} {
		_, err := c.HandleChallenge(b)
		require.Equal(t, ErrMalformed, err)
	}
	proof, err := c.HandleChallenge(s.Challenge())
	require.NoError(t, err)
	for _, b := range [][]byte{nil, proof[:ProofSize-1], append(bytes.Clone(proof), 0)} {
		require.Equal(t, ErrDenied, s.HandleProof(b))
	}
	require.NoError(t, s.HandleProof(proof))
	require.Nil(t, s.Last(errors.New("of no concern to the client")))
	verdict := s.Last(nil)
	for i := 20; i < len(verdict); i++ {
		b := bytes.Clone(verdict)
		b[i] ^= 0x81
		require.Equal(t, ErrServerUnauthenticated, c.HandleVerdict(b), i)
	}
	require.Equal(t, ErrMalformed, c.HandleVerdict(newReply(prove, proof, "")))
	for _, n := range []int{0, HeadSize - 1, MaxMessage + 1, 65535} {
		_, err := Length(head{}.append(nil, n))
		require.Equal(t, ErrMalformed, err, n)
	}
}

// A message that says its length, and is too short for what it has to have, is refused. One byte less than that is
// too little, and no more is needed.
func TestShortMessages(t *testing.T) {
	short := func(b []byte, n int) []byte {
		b = bytes.Clone(b[:n])
		binary.LittleEndian.PutUint16(b[6:], uint16(n))
		return b
	}
	hello := (&Hello{Transport: RDMA, Tenant: strings.Repeat("t", MaxName), Server: strings.Repeat("s", MaxServer), Address: at}).append(nil)
	_, err := ReadHello(hello)
	require.NoError(t, err)
	said := newReply(other, nil, strings.Repeat("s", MaxServer))
	r, err := readReply(said)
	require.NoError(t, err)
	require.Len(t, r.text, MaxServer)
	for n := HeadSize; n < len(hello); n++ {
		_, err := ReadHello(short(hello, n))
		require.Equal(t, ErrMalformed, err, n)
	}
	for n := HeadSize; n < len(said); n++ {
		_, err := readReply(short(said, n))
		require.Equal(t, ErrMalformed, err, n)
		require.False(t, IsLater(short(said, n)))
	}
	_, err = readReply(newReply(statuses, nil, ""))
	require.Equal(t, ErrMalformed, err)
	for _, n := range []int{HeadSize, MaxMessage} {
		got, err := Length(head{}.append(nil, n))
		require.NoError(t, err)
		require.Equal(t, n, got)
	}
	none := &Hello{Transport: TCP}
	got, err := ReadHello(none.append(nil))
	require.NoError(t, err)
	require.Equal(t, *none, got, "no names, and no address")
}

// What a server is called that has a longer name than fits is told in part.
func TestLongNameOfAnotherServer(t *testing.T) {
	s := NewServer(NewClient(Hello{Transport: TCP}, nil).Hello(), nil)
	for _, n := range []int{MaxServer - 1, MaxServer, MaxServer + 1, 2 * MaxMessage} {
		r, err := readReply(s.Last(&OtherError{"a", strings.Repeat("b", n)}))
		require.NoError(t, err)
		require.Equal(t, strings.Repeat("b", min(n, MaxServer)), r.text)
	}
}
