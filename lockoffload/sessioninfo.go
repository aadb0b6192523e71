package lockoffload

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// SessionInfo is what a client gets from the target when it is admitted: its identity,
// the address of the region, the length of its lease. It travels with the exchange of
// endpoints, see [Session.Endpoint], and is as confidential as the rkey in it.
type SessionInfo struct {
	Owner  uint16 // 1 to Layout.Clients
	Epoch  uint16 // differs each time that an owner number is given out
	Lease  time.Duration
	Region verbs.Region
	Layout Layout
	// Generation is a random number of the region's: a target that is started anew has
	// another one.
	Generation uint64
}

func (in SessionInfo) target() target { return target{in.Layout.withDefaults(), in.Generation} }

// wireSessionInfo is the encoding, big endian.
type wireSessionInfo struct {
	Magic        [4]byte
	Owner, Epoch uint16
	Lease        time.Duration
	Region       [verbs.RegionSize]byte
	Target       wireTarget
	Reserved     uint32
}

var sessionInfoMagic = [4]byte([]byte("GVL4"))

// AppendBinary appends the session info's encoding to b.
func (in SessionInfo) AppendBinary(b []byte) ([]byte, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	w := wireSessionInfo{Magic: sessionInfoMagic, Owner: in.Owner, Epoch: in.Epoch, Lease: in.Lease, Target: in.target().wire()}
	_, _ = in.Region.AppendBinary(w.Region[:0])
	return binary.Append(b, binary.BigEndian, w)
}

// MarshalBinary returns the session info's encoding.
func (in SessionInfo) MarshalBinary() ([]byte, error) { return in.AppendBinary(nil) }

// UnmarshalBinary decodes what AppendBinary made; anything else is refused
// with [ErrConfig].
func (in *SessionInfo) UnmarshalBinary(b []byte) error {
	var w wireSessionInfo
	n, err := binary.Decode(b, binary.BigEndian, &w)
	if err != nil || n != len(b) || w.Magic != sessionInfoMagic || w.Reserved != 0 {
		return fmt.Errorf("lockoffload: decode session info of %d bytes: %w", len(b), ErrConfig)
	}
	t, err := w.Target.target()
	if err != nil {
		return fmt.Errorf("lockoffload: decode session info: %w", err)
	}
	out := SessionInfo{Owner: w.Owner, Epoch: w.Epoch, Lease: w.Lease, Layout: t.layout, Generation: t.generation}
	if err := out.Region.UnmarshalBinary(w.Region[:]); err != nil {
		return err
	}
	if err := out.check(); err != nil {
		return err
	}
	*in = out
	return nil
}

// minLease is the shortest lease: heartbeats come three times in one, and the target
// looks for them eight times.
const minLease = time.Millisecond

func (in SessionInfo) check() error {
	l := in.Layout.withDefaults()
	if err := l.check(); err != nil {
		return err
	}
	if in.Owner == 0 || int(in.Owner) > l.Clients || in.Lease != 0 && in.Lease < minLease || in.Region.Length < uint64(l.Bytes()) {
		return fmt.Errorf("lockoffload: session info of owner %d of %d, lease %v, region of %d bytes: %w", in.Owner, l.Clients, in.Lease, in.Region.Length, ErrConfig)
	}
	return nil
}
