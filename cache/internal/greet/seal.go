package greet

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
)

// A greeting authenticates both ends of a TCP connection. Relaying it is harmless, but a relay must
// not let the ends greet each other and then go on with queue pairs of its own. So what each side says
// of its queue pairs has a seal, with a key derived from the tenant's key and the messages of the
// greeting.

// SealSize is the length of a seal in bytes.
const SealSize = sha256.Size

// ErrSeal: what was said of a connection is not sealed by the peer of the greeting.
var ErrSeal = errors.New("the description of the connection is not sealed with the key of this handshake")

// sealLabel is the label of the seals' key, which is derived from a tenant's key.
const sealLabel = "goverbs cache: seal"

// Seal makes one side's seals and checks the other's. The zero value is of a greeting without a key:
// it seals nothing.
type Seal struct {
	key          []byte
	mine, theirs string
}

func newSeal(key []byte, mine, theirs string, hello, challenge []byte) Seal {
	if len(key) == 0 {
		return Seal{}
	}
	return Seal{key: sign(key, sealLabel, hello, challenge), mine: mine, theirs: theirs}
}

// Of returns the seal of what this side says.
func (s Seal) Of(said []byte) (seal [SealSize]byte) {
	if s.key != nil {
		copy(seal[:], sign(s.key, s.mine, said, nil))
	}
	return seal
}

// Check returns [ErrSeal] if seal is not the other side's seal of what it said.
func (s Seal) Check(said []byte, seal [SealSize]byte) error {
	var want [SealSize]byte
	if s.key != nil {
		copy(want[:], sign(s.key, s.theirs, said, nil))
	}
	if !hmac.Equal(want[:], seal[:]) {
		return ErrSeal
	}
	return nil
}
