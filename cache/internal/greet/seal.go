package greet

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
)

// A greeting proves who is at the other end of a TCP connection, and that somebody passes on what both
// ends say is no harm: he has nothing of it. What he must not do is to let them greet each other and
// go on by himself, with queue pairs of his own. So what each side says of its queue pairs has a seal,
// by a key that both made of the tenant's and of all that the greeting was made of.

// SealSize is the length of a seal in bytes.
const SealSize = sha256.Size

// ErrSeal: what was said of a connection is not of the one who has greeted.
var ErrSeal = errors.New("what the peer says of its connection is not sealed by who has greeted")

// Labels of what is derived from a tenant's key, and of what each side seals.
const sealLabel = "goverbs cache: seal"

// Seal is one side's. The zero value is of a greeting without a key: it seals nothing.
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

// Of seals what this side says.
func (s Seal) Of(said []byte) (seal [SealSize]byte) {
	if s.key != nil {
		copy(seal[:], sign(s.key, s.mine, said, nil))
	}
	return seal
}

// Check answers [ErrSeal] if a seal is not the other side's, of what it said.
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
