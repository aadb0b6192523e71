package driver

import (
	"context"
	"iter"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/hook"
	"github.com/goverbs/goverbs/verbs"
)

var (
	adoptDevice  = hook.AdoptDevice.(func(string, cgo.Context, verbs.DeviceConfig, DeviceOwner) (*verbs.Device, func() error, error))
	wrapDevice   = hook.WrapDevice.(func(string, cgo.Context, verbs.DeviceAttr) *verbs.Device)
	softRoCE     = hook.SoftRoCE.(func(*verbs.Device) bool)
	resetRaces   = hook.ResetRaces.(func(*verbs.Device) bool)
	findGIDAgain = hook.FindGIDAgain.(func(*verbs.Device, verbs.GIDEntry) (verbs.GIDEntry, error))
	followGID    = hook.FollowGID.(func(context.Context, *verbs.Device, verbs.GIDEntry, <-chan struct{}) iter.Seq2[verbs.GIDEntry, error])
	createCQFor  = hook.CreateCQFor.(func(*verbs.Device, verbs.QPConfig) (*verbs.CQ, error))
	ahAttr       = hook.AHAttr.(func(*cgo.AHAttr) verbs.AHAttr)
)

// DeviceOwner is code that opens a device's context itself and shares it, as package
// rdmacm does: librdmacm has one context for each device.
type DeviceOwner = struct {
	// Close is what [verbs.Device.Close] calls: it may refuse, or close the device with the
	// function that AdoptDevice returned. If it is nil, Device.Close calls that function.
	Close func() error
	// Release gives the context back. It is called when the device has closed, or
	// could not be made.
	Release func() error
	// Event, if not nil, is called with each asynchronous event, before it reaches
	// [verbs.Device.Events] and before it is acknowledged: it must not close the object of
	// the event.
	Event func(verbs.Event)
}

// AdoptDevice makes a device of a context that owner opened, with attributes and events
// as from [verbs.Open]. close closes the device, and is refused with [verbs.ErrInUse] while
// anything made on it is open.
func AdoptDevice(name string, ctx cgo.Context, cfg verbs.DeviceConfig, owner DeviceOwner) (d *verbs.Device, close func() error, err error) {
	return adoptDevice(name, ctx, cfg, owner)
}

// WrapDevice makes a device, with these attributes, of a context that other code opened
// and owns, such as a test. Its asynchronous events are not read, and Close leaves the
// context open.
func WrapDevice(name string, ctx cgo.Context, attr verbs.DeviceAttr) *verbs.Device {
	return wrapDevice(name, ctx, attr)
}

// SoftRoCE reports whether a device is the kernel's software device (rxe), by its vendor ID.
func SoftRoCE(d *verbs.Device) bool { return softRoCE(d) }

// ResetRaces reports whether [verbs.QP.ToReset] harms a device when it meets requests that are
// being executed or have just been acknowledged. [verbs.QP.Quiesce] and [verbs.QP.Close] do no
// harm.
func ResetRaces(d *verbs.Device) bool { return resetRaces(d) }

// FindGIDAgain returns the entry that an earlier one has become: the same GID of the same
// type on the same port and, if the GID is link-local or several netdevs have it, of the
// same netdev. Its index is another one if the address has gone and come back meanwhile. It
// fails with [verbs.ErrNoGID] while the address is gone.
func FindGIDAgain(d *verbs.Device, e verbs.GIDEntry) (verbs.GIDEntry, error) {
	return findGIDAgain(d, e)
}

// FollowGID follows a GID through changes of the GID table. From the call on, it yields the
// GID's entry, or the error of [FindGIDAgain], each time that the table or the state
// of the GID's port has changed, until ctx is done or the device is closed:
//
//	for now, err := range driver.FollowGID(ctx, device, gid, nil) { ... }
//
// Address handles and queue pairs that were made with another index than the entry has now
// reach nothing any more. Even if the index is the same, handles may hold a link-layer
// address that is out of date. Events that come while the body of the loop runs are yielded
// as one.
//
// A token in doubt, which may be nil, has the GID looked up without an event, at most once in
// 100 ms; while the GID is gone, it is looked up each second. What is found then is yielded if
// it differs from what was known before.
func FollowGID(ctx context.Context, d *verbs.Device, e verbs.GIDEntry, doubt <-chan struct{}) iter.Seq2[verbs.GIDEntry, error] {
	return followGID(ctx, d, e, doubt)
}

// CreateCQFor makes a completion queue for a queue pair of that configuration, with room
// for all of its work requests, and with [verbs.Device.NextVector].
func CreateCQFor(d *verbs.Device, cfg verbs.QPConfig) (*verbs.CQ, error) { return createCQFor(d, cfg) }

// AHAttr returns an address vector of C.
func AHAttr(raw *cgo.AHAttr) verbs.AHAttr { return ahAttr(raw) }
