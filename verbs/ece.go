package verbs

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/cgo"
)

// ECE (enhanced connection establishment) is how devices of one vendor agree on
// options of a connection that go beyond the InfiniBand specification, such as a
// better way to send again what was lost: struct ibv_ece. Options belong to the
// vendor; only devices know what they mean.
//
// A queue pair made with [QPConfig.ECE] has an offer in its [Endpoint]. [QP.Connect]
// hands the peer's offer to the device before [StateRTR], as librdmacm does, and the
// device accepts the options that it has. A peer without an offer, or with a device of
// another vendor, gets none of the options. Programs from before ECE do not understand an
// endpoint with an offer.
type ECE struct {
	Vendor  uint32 // of the device; 0: no offer
	Options uint32
}

// ECE returns what the queue pair offers or, once it is connected, which options the
// device took. [ErrUnsupported] means that the device has no ECE. Safe for concurrent
// use.
func (q *QP) ECE() (ECE, error) {
	const op = "query ECE of"
	var e ECE
	return e, q.life.With(op, func() (err error) {
		e.Vendor, e.Options, err = cgo.QueryECE(q.qp)
		return opError(op, q.life.Label, unsupported(err))
	})
}

// offerECE queries a new queue pair's offer: later the device reports what it
// accepted. Without an offer, connections are as ever.
func (q *QP) offerECE() error {
	e, err := q.ECE()
	if err != nil && !errors.Is(err, ErrUnsupported) {
		return err
	}
	q.offer = e
	return nil
}

// acceptECE passes the peer's offer to the device, if this side offers too: before
// [StateRTR], for a device that is connected forgets what it took.
func (q *QP) acceptECE(peer ECE) error {
	if q.offer == (ECE{}) || q.State() != StateInit { // no such transition: Modify says so
		return nil
	}
	if peer.Vendor != q.offer.Vendor {
		peer = ECE{Vendor: q.offer.Vendor}
	}
	const op = "set ECE of"
	return q.life.With(op, func() error {
		err := unsupported(cgo.SetECE(q.qp, peer.Vendor, peer.Options))
		if errors.Is(err, ErrUnsupported) { // the kernel knows it not, or lost it
			return nil
		}
		return opError(op, q.life.Label, err, fmt.Sprintf("vendor %#x, options %#x", peer.Vendor, peer.Options))
	})
}
