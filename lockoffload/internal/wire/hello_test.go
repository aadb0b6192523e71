package wire

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var key = []byte("a key of twenty bytes")

func TestHandshake(t *testing.T) {
	c := Challenge{1, 2, 3}
	got, err := ReadChallenge(bytes.NewReader(c.Append(nil)))
	require.NoError(t, err)
	require.Equal(t, c, got)
	h := Hello{Kind: Agent, Client: 77, Nonce: Nonce{4}, Body: []byte("where I am")}
	again, err := ReadHello(bytes.NewReader(h.Append(nil, key, c)), key, c)
	require.NoError(t, err)
	require.Equal(t, h, again)
	status, body, err := ReadReply(bytes.NewReader(AppendReply(nil, key, c, h.Nonce, Full, []byte("no"))), key, c, h.Nonce)
	require.NoError(t, err)
	require.Equal(t, Full, status)
	require.Equal(t, "no", string(body))
}

// No bit can be changed, no key be guessed in part, nothing be said twice.
func TestHandshakeIsAuthenticated(t *testing.T) {
	c := Challenge{1, 2, 3}
	h := Hello{Kind: Session, Client: 77, Nonce: Nonce{4}, Body: []byte("where I am")}
	msg := h.Append(nil, key, c)
	for i := range len(msg) * 8 {
		bad := bytes.Clone(msg)
		bad[i/8] ^= 1 << (i % 8)
		_, err := ReadHello(bytes.NewReader(bad), key, c)
		require.Error(t, err, "bit %d", i)
	}
	_, err := ReadHello(bytes.NewReader(msg), key, Challenge{1, 2, 4})
	require.ErrorIs(t, err, ErrKey, "recorded, and said again")
	_, err = ReadHello(bytes.NewReader(msg), key[:20], c)
	require.ErrorIs(t, err, ErrKey)
	_, _, err = ReadReply(bytes.NewReader(msg), key, c, h.Nonce)
	require.Error(t, err, "a hello is no reply")

	reply := AppendReply(nil, key, c, h.Nonce, Welcome, []byte("come in"))
	_, _, err = ReadReply(bytes.NewReader(reply), key, c, Nonce{5})
	require.ErrorIs(t, err, ErrKey, "to another client")
	_, _, err = ReadReply(strings.NewReader("\x04\x00\x00\x00\x00\x00\x00\x00"), key, c, h.Nonce)
	require.ErrorIs(t, err, ErrKey)
}

func FuzzHello(f *testing.F) {
	c := Challenge{9}
	f.Add((&Hello{Kind: Session, Body: []byte("x")}).Append(nil, key, c))
	f.Add(AppendReply(nil, key, c, Nonce{}, Refused, []byte("why")))
	f.Add(c.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := ReadHello(bytes.NewReader(b), key, c); err == nil {
			require.Equal(t, h.Append(nil, key, c), b[:len(h.Append(nil, key, c))])
		}
		_, _, _ = ReadReply(bytes.NewReader(b), key, c, Nonce{})
		_, _ = ReadChallenge(bytes.NewReader(b))
	})
}

// A other does not make the other side allocate by what it says.
func TestHandshakeBodyIsBounded(t *testing.T) {
	_, err := ReadHello(bytes.NewReader(append([]byte("S\x00\x00\x00\x7f\xff\xff\xff"), make([]byte, 100)...)), key, Challenge{})
	require.ErrorIs(t, err, ErrMalformed)
	_, err = ReadChallenge(bytes.NewReader(make([]byte, 100)))
	require.ErrorIs(t, err, ErrMalformed)
}
