package netpath

import (
	"errors"
	"net/netip"

	"github.com/goverbs/goverbs/internal/operr"
)

// Errors that a program may act on. They are wrapped with details: test with [errors.Is].
// On systems other than Linux everything fails with [errors.ErrUnsupported].
var (
	// ErrNoAddress: no netdev of this network namespace has the address.
	ErrNoAddress = errors.New("no such address on this host")
	// ErrNoNetdev: this network namespace has no netdev of that name.
	ErrNoNetdev = errors.New("no such netdev")
	// ErrNotRDMA: neither the netdev nor what it is stacked on belongs to an
	// RDMA device.
	ErrNotRDMA = errors.New("netdev without an RDMA device")
	// ErrLinkDown: the netdev is down or has no carrier.
	ErrLinkDown = errors.New("link down")
	// ErrNoRoute: the kernel has no route to the address.
	ErrNoRoute = errors.New("no route")
	// ErrNoNeighbour: the next hop did not reply with its link-layer address.
	ErrNoNeighbour = errors.New("next hop does not answer")
	// ErrNoGID: no entry of the GID table matches the query.
	ErrNoGID = errors.New("no matching GID")
)

// OpError is the failure of one operation on one object: Op, such as "look up", and Object, such as
// "10.77.0.1" or "eth0"; Err is a sentinel of this package, an errno, or both joined; Detail is
// what is known of the cause, or empty.
type OpError = operr.Error

// zoned returns an error of that kind if an address needs a zone and has none.
func zoned(op string, a netip.Addr, kind error) error {
	if remedy := operr.Zoneless(a); remedy != "" {
		return opError(op, a.String(), kind, remedy)
	}
	return nil
}

func opError(op, object string, err error, detail ...any) error {
	return operr.In("netpath", op, object, err, detail...)
}
