package dc

import (
	"errors"

	"github.com/goverbs/goverbs/verbs"
)

// Backend is what carries the requests. Both ends must have the same one: an
// address tells which it is.
type Backend uint8

const (
	// Auto is Hardware where the device has it, else Software.
	Auto Backend = iota
	// Software is RC queue pairs, attached to one target after another.
	Software
	// Hardware is the DCI and DCT queue pairs of mlx5. On another device it is
	// refused with [verbs.ErrUnsupported].
	Hardware
)

func (b Backend) String() string {
	switch b {
	case Auto:
		return "auto"
	case Software:
		return "software"
	case Hardware:
		return "hardware"
	}
	return "unknown back end"
}

// choose tries the hardware, unless it is not wanted, and tells whether that
// settled the matter.
func (b Backend) choose(hardware func() error) (done bool, err error) {
	switch b {
	case Software:
		return false, nil
	case Auto, Hardware:
	default:
		return true, errors.Join(verbs.ErrAttributes, errors.New(b.String()))
	}
	err = hardware()
	if b == Auto && errors.Is(err, verbs.ErrUnsupported) {
		return false, nil
	}
	return true, err
}

// Hardware tells which back end the initiator has.
func (i *Initiator) Hardware() bool { return i.hw != nil }
