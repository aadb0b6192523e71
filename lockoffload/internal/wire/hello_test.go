package wire

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"io"
	"slices"
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

// signed is a message with the HMAC that the description of the package says.
func signed(direction string, c Challenge, n Nonce, msg string) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(direction + string(c[:]) + string(n[:]) + msg))
	return msg + string(h.Sum(nil))
}

// head is the beginning of a hello or a reply with a body of so many bytes.
func head(kind byte, n int) string {
	return string([]byte{kind, 0, 0, 0, 0, 0, byte(n >> 8), byte(n)})
}

// The bytes of version 1, written out by hand from the description.
func TestHandshakeGolden(t *testing.T) {
	c, n := Challenge{1, 2, 3}, Nonce{4}
	require.Equal(t, "beforeGVLH\x01\x00\x00\x00"+string(c[:]), string(c.Append([]byte("before"))))
	h := Hello{Kind: Agent, Client: 0x14d, Nonce: n, Body: []byte("me")}
	require.Equal(t, "before"+signed("hello", c, n, head('A', 2)+"\x00\x00\x00\x00\x00\x00\x01\x4d"+string(n[:])+"me"), string(h.Append([]byte("before"), key, c)))
	require.Equal(t, "before"+signed("reply", c, n, head(2, 2)+"no"), string(AppendReply([]byte("before"), key, c, n, Full, []byte("no"))))
}

// Messages with the right HMAC are refused too if their fields say nothing, and without it
// whatever they say.
func TestHandshakeValues(t *testing.T) {
	c, n := Challenge{1, 2, 3}, Nonce{4}
	hello := func(head, body string, key []byte) (Hello, error) {
		msg := signed("hello", c, n, head+"\x00\x00\x00\x00\x00\x00\x00\x07"+string(n[:])+body)
		return ReadHello(strings.NewReader(msg), key, c)
	}
	reply := func(head, body string, key []byte) (Status, []byte, error) {
		return ReadReply(strings.NewReader(signed("reply", c, n, head+body)), key, c, n)
	}
	for value := range 256 {
		h, err := hello(head(byte(value), 0), "", key)
		if kind := Kind(value); kind == Session || kind == Agent {
			require.NoError(t, err)
			require.Equal(t, Hello{Kind: kind, Client: 7, Nonce: n, Body: []byte{}}, h)
		} else {
			require.ErrorIs(t, err, ErrMalformed, "kind %d", value)
		}
		got, _, err := reply(head(byte(value), 0), "", key)
		switch status := Status(value); status {
		case Welcome, Full, Refused, Wait:
			require.NoError(t, err)
			require.Equal(t, status, got)
		case NoKey:
			require.ErrorIs(t, err, ErrKey)
		default:
			require.ErrorIs(t, err, ErrMalformed, "status %d", value)
		}
		_, err = hello(head(byte(value), 0), "", []byte("another"))
		require.ErrorIs(t, err, ErrKey)
		_, _, err = reply(head(byte(value), 0), "", []byte("another"))
		require.ErrorIs(t, err, ErrKey)
	}
	for at := 1; at < 4; at++ {
		reserved := []byte(head('S', 0))
		reserved[at] = 1
		_, err := hello(string(reserved), "", key)
		require.ErrorIs(t, err, ErrMalformed, "byte %d", at)
	}
	for length, want := range map[int]error{MaxBody: nil, MaxBody + 1: ErrMalformed} {
		body := strings.Repeat("b", length)
		h, err := hello(head('S', length), body, key)
		require.ErrorIs(t, err, want, "%d bytes", length)
		require.Equal(t, err == nil, string(h.Body) == body)
		_, _, err = reply(head(1, length), body, key)
		require.ErrorIs(t, err, want, "%d bytes", length)
	}
}

// A connection that ends in the middle of a message is told from one that ends before it.
func TestHandshakeCutShort(t *testing.T) {
	c, n := Challenge{1, 2, 3}, Nonce{4}
	for name, v := range map[string]struct {
		msg   []byte
		parts []int // where a part begins
		read  func(io.Reader) error
	}{
		"challenge": {c.Append(nil), []int{0}, func(r io.Reader) error { _, err := ReadChallenge(r); return err }},
		"hello": {(&Hello{Kind: Session, Nonce: n, Body: []byte("me")}).Append(nil, key, c), []int{0, helloHead},
			func(r io.Reader) error { _, err := ReadHello(r, key, c); return err }},
		"reply": {AppendReply(nil, key, c, n, Full, []byte("no")), []int{0, replyHead},
			func(r io.Reader) error { _, _, err := ReadReply(r, key, c, n); return err }},
	} {
		for i := range v.msg {
			want := io.ErrUnexpectedEOF
			if slices.Contains(v.parts, i) {
				want = io.EOF
			}
			require.ErrorIs(t, v.read(bytes.NewReader(v.msg[:i])), want, "%s of %d bytes", name, i)
		}
		require.NoError(t, v.read(bytes.NewReader(v.msg)))
	}
}

// What one side says does not make the other one allocate.
func TestHandshakeBodyIsBounded(t *testing.T) {
	_, err := ReadHello(bytes.NewReader(append([]byte("S\x00\x00\x00\x7f\xff\xff\xff"), make([]byte, 100)...)), key, Challenge{})
	require.ErrorIs(t, err, ErrMalformed)
	_, err = ReadChallenge(bytes.NewReader(make([]byte, 100)))
	require.ErrorIs(t, err, ErrMalformed)
}
