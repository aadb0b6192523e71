package greet

import (
	"bytes"
	"crypto/hmac"
	"errors"
)

// Client is the client's side of one greeting.
type Client struct {
	key              []byte
	said             Hello
	hello, challenge []byte
}

// NewClient begins a greeting by a hello, to which it adds the nonce. Without a key it succeeds only if
// the server needs no proof.
func NewClient(h Hello, key []byte) *Client {
	h.Nonce = nonce()
	return &Client{key: key, said: h, hello: h.append(nil)}
}

// Hello returns the client's first message.
func (c *Client) Hello() []byte { return c.hello }

// HandleChallenge takes the server's challenge, and returns the proof that goes next, or none if the
// greeting is over.
func (c *Client) HandleChallenge(b []byte) (proof []byte, err error) {
	r, err := readReply(b)
	switch {
	case err != nil:
		return nil, err
	case r.status == unable:
		return nil, &VersionError{Version, r.version, c.said.Required &^ r.offered, true}
	case r.status == other:
		return nil, &OtherError{c.said.Server, r.text}
	case r.status == come && len(c.key) == 0:
		return nil, nil
	case r.status == come:
		return nil, ErrServerUnauthenticated // a client with a key needs the server's proof
	case r.status != prove:
		return nil, ErrMalformed
	case len(c.key) == 0:
		return nil, ErrKeyWanted
	}
	c.challenge = bytes.Clone(b)
	return sign(c.key, byClient, c.hello, c.challenge), nil
}

// HandleVerdict takes the server's verdict, and returns nil if the client is admitted, by the right server.
func (c *Client) HandleVerdict(b []byte) error {
	r, err := readReply(b)
	switch {
	case err != nil:
		return err
	case r.status == denied:
		return ErrDenied
	case r.status == full:
		return ErrFull
	case r.status == other:
		return &OtherError{c.said.Server, r.text}
	case r.status != come:
		return ErrMalformed
	case !hmac.Equal(r.body, sign(c.key, byServer, c.hello, c.challenge)):
		return ErrServerUnauthenticated
	}
	return nil
}

// Seal returns the seal that binds the connection that follows to this greeting, once [Client.HandleVerdict]
// has returned nil or the greeting is over without a proof.
func (c *Client) Seal() Seal { return newSeal(c.key, byClient, byServer, c.hello, c.challenge) }

// Server is the server's side of one greeting.
type Server struct {
	key              []byte
	hello, challenge []byte
}

// NewServer begins the reply to a hello that [ReadHello] has decoded. Without a key any client is
// admitted. For an unknown tenant the key must be one that no client has: without a key a client then
// cannot learn which tenants there are.
func NewServer(hello, key []byte) *Server {
	s := &Server{key: key, hello: bytes.Clone(hello)}
	st := prove
	if len(key) == 0 {
		st = come
	}
	n := nonce()
	s.challenge = newReply(st, n[:], "")
	return s
}

// Challenge returns the server's first message.
func (s *Server) Challenge() []byte { return s.challenge }

// Open reports whether the greeting is over with the challenge.
func (s *Server) Open() bool { return len(s.key) == 0 }

// HandleProof takes the client's proof, and returns [ErrDenied] if it proves nothing.
func (s *Server) HandleProof(proof []byte) error {
	if s.Open() || !hmac.Equal(proof, sign(s.key, byClient, s.hello, s.challenge)) {
		return ErrDenied
	}
	return nil
}

// Last returns the server's last message: that the client is admitted if err is nil, and otherwise that
// it is not because of err. It is nil for an error that is of no concern to the client.
func (s *Server) Last(err error) []byte {
	var elsewhere *OtherError
	switch {
	case err == nil && s.Open():
		return s.challenge
	case err == nil:
		return newReply(come, sign(s.key, byServer, s.hello, s.challenge), "")
	case errors.Is(err, ErrDenied):
		return newReply(denied, nil, "")
	case errors.Is(err, ErrFull):
		return newReply(full, nil, "")
	case errors.As(err, &elsewhere):
		return newReply(other, nil, elsewhere.Here[:min(len(elsewhere.Here), MaxServer)])
	}
	return nil
}

// Seal returns the seal that binds the connection that follows to this greeting, once [Server.HandleProof]
// has returned nil.
func (s *Server) Seal() Seal { return newSeal(s.key, byServer, byClient, s.hello, s.challenge) }
