package dc

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/verbs"
)

// Backend is what carries the requests. Both ends must have the same one, which is part
// of an address.
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

// choose tries the hardware, unless it is not wanted, and then the software.
func choose[T any](b Backend, hardware, software func() (T, error)) (T, error) {
	switch b {
	case Software:
		return software()
	case Auto, Hardware:
	default:
		var none T
		return none, errors.Join(verbs.ErrAttributes, errors.New(b.String()))
	}
	made, err := hardware()
	if b == Auto && errors.Is(err, verbs.ErrUnsupported) {
		return software()
	}
	return made, err
}

// place is room for requests of a peer in a queue pair.
type place struct {
	peer  *Peer
	ring  *ring
	first uint32 // position
	room  int
}

// backend is what an initiator has its requests carried by. Methods are called
// with the initiator's lock held, if nothing else is said.
type backend interface {
	// resolve checks an address, and makes room for what is kept of its peer.
	resolve(p *Peer) error
	// leave closes what there is for an idle peer, or all that is kept of it.
	leave(p *Peer, forever bool) error
	// attach finds the way to a peer. It is called without the lock.
	attach(ctx context.Context, p *Peer) error
	// place returns where the next requests to a peer belong, at most n. There is room for
	// none if others wait. It may release the lock for a while before that.
	place(p *Peer, n int) (place, error)
	// transmit posts the requests that have filled a place, and returns the number that the
	// device took. look, from 0 on, is how often to look for completions in the same
	// crossing; looked reports whether it has, and then found must be dispatched without the
	// lock.
	transmit(at place, look int) (posted int, looked bool, found verbs.Polled, err error)
	// enqueue says that n more requests wait for the peer; withdrawn, that n were
	// taken back.
	enqueue(p *Peer, n int)
	withdrawn(p *Peer, n int)
	// completed takes the end of a request by its tag.
	completed(tag uint64, wc *verbs.WC)
	// busy reports whether perform has something to do. perform releases the lock for
	// a while.
	busy() bool
	perform()
	// abort ends what the device has of a peer, if no other peer suffers.
	abort(p *Peer)
	stats(s *Stats)
	peerStats(p *Peer, s *PeerStats)
	queuePairs() int
	// halt takes back from the device the requests that it has, which can no longer be
	// completed. It is called once, without the lock, perhaps during stop and close.
	halt()
	// stop ends what goes on in the background, and close closes all that was
	// made. Each is called once, without the lock, after Close.
	stop()
	close() error
}
