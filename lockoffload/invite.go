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

// target identifies the target of a client, which must stay the same as long as the client
// lives: versions and locks of one target mean nothing at another.
type target struct {
	layout      Layout
	incarnation uint64
}

// accepts returns an error unless other is the same target.
func (t target) accepts(other target) error {
	switch {
	case t.incarnation != other.incarnation:
		return ErrRestarted
	case t.layout != other.layout:
		return fmt.Errorf("%w: the target has another layout", ErrConfig)
	}
	return nil
}

func (t target) append(b []byte) []byte {
	return binary.BigEndian.AppendUint64(t.layout.append(b), t.incarnation)
}

const targetSize = layoutSize + 8

// decodeTarget decodes targetSize bytes.
func decodeTarget(b []byte) (t target, err error) {
	t.incarnation = binary.BigEndian.Uint64(b[layoutSize:])
	t.layout, err = decodeLayout(b[:layoutSize])
	return t, err
}

func (in SessionInfo) target() target { return target{in.Layout.withDefaults(), in.Generation} }

const (
	inviteMagic = "GVL4"
	inviteSize  = 4 + 2 + 2 + 8 + verbs.RegionSize + targetSize + 4
)

// AppendBinary appends the invite's encoding to b.
func (in SessionInfo) AppendBinary(b []byte) ([]byte, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	be := binary.BigEndian
	b = append(b, inviteMagic...)
	b = be.AppendUint16(b, in.Owner)
	b = be.AppendUint16(b, in.Epoch)
	b = be.AppendUint64(b, uint64(in.Lease))
	b, _ = in.Region.AppendBinary(b)
	b = in.target().append(b)
	return append(b, 0, 0, 0, 0), nil
}

// MarshalBinary returns the invite's encoding.
func (in SessionInfo) MarshalBinary() ([]byte, error) { return in.AppendBinary(nil) }

// UnmarshalBinary decodes what AppendBinary made; anything else is refused
// with [ErrConfig].
func (in *SessionInfo) UnmarshalBinary(b []byte) error {
	if len(b) != inviteSize || string(b[:4]) != inviteMagic || string(b[inviteSize-4:]) != "\x00\x00\x00\x00" {
		return fmt.Errorf("lockoffload: decode invite of %d bytes: %w", len(b), ErrConfig)
	}
	be := binary.BigEndian
	t, err := decodeTarget(b[16+verbs.RegionSize:][:targetSize])
	if err != nil {
		return fmt.Errorf("lockoffload: decode invite: %w", err)
	}
	out := SessionInfo{Owner: be.Uint16(b[4:]), Epoch: be.Uint16(b[6:]), Lease: time.Duration(be.Uint64(b[8:])), Layout: t.layout, Generation: t.incarnation}
	if err := out.Region.UnmarshalBinary(b[16 : 16+verbs.RegionSize]); err != nil {
		return err
	}
	if err := out.check(); err != nil {
		return err
	}
	*in = out
	return nil
}

// leastLease is the shortest lease: heartbeats come three times in one, and the target
// looks for them eight times.
const leastLease = time.Millisecond

func (in SessionInfo) check() error {
	l := in.Layout.withDefaults()
	if err := l.check(); err != nil {
		return err
	}
	if in.Owner == 0 || int(in.Owner) > l.Clients || in.Lease != 0 && in.Lease < leastLease || in.Region.Length < uint64(l.Bytes()) {
		return fmt.Errorf("lockoffload: invite of owner %d of %d, lease %v, region of %d bytes: %w", in.Owner, l.Clients, in.Lease, in.Region.Length, ErrConfig)
	}
	return nil
}
