package verbs

import (
	"log/slog"

	"github.com/goverbs/goverbs/cgo"
)

// Raw is the queue pair as package cgo knows it: the address of its struct
// ibv_qp, for code that calls C on it. It is valid until Close.
func (q *QP) Raw() cgo.QP { return q.qp }

// Raw is the completion queue as package cgo knows it: the address of its
// struct ibv_cq, for code that calls C on it. It is valid until Close.
func (c *CQ) Raw() cgo.CQ { return c.cq }

// Wrap puts the data path of this package on a queue pair and a completion queue that
// other code made and owns, such as a C library or a test. It allows polling, and batches
// of up to maxWR work requests with two scatter/gather entries and 64 bytes inline each.
// The queue pair is assumed to be connected. Neither object may be closed or waited on
// through the result.
func Wrap(qp cgo.QP, cq cgo.CQ, maxWR int) (*QP, *CQ) {
	q := &QP{qp: qp, typ: RC, cap: cgo.QPCap{MaxSendWR: uint32(maxWR), MaxRecvWR: uint32(maxWR),
		MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 64}}
	q.life.Label = "wrapped qp"
	q.state.Store(uint32(StateRTS))
	c := &CQ{cq: cq, depth: maxWR}
	c.life.Label = "wrapped cq"
	q.sendCQ, q.recvCQ = c, c
	return q, c
}

// WrapDevice makes a device, with these attributes, of a context that other code opened
// and owns, such as a test. Its asynchronous events are not read, and Close leaves the
// context open.
func WrapDevice(name string, ctx cgo.Context, attr DeviceAttr) *Device {
	d := &Device{name: name, ctx: ctx, attr: attr, log: slog.New(slog.DiscardHandler), async: newAsyncReader(), owner: DeviceOwner{Release: func() error { return nil }}}
	d.life.Label = name
	d.async.end()
	close(d.async.done)
	return d
}

// DeviceOwner is code that opens a device's context itself and shares it, as package
// rdmacm does: librdmacm has one context for each device.
type DeviceOwner struct {
	// Close is what [Device.Close] calls: it may refuse, or close the device with the
	// function that AdoptDevice returned. If it is nil, Device.Close calls that function.
	Close func() error
	// Release gives the context back. It is called when the device has closed, or
	// could not be made.
	Release func() error
	// Event, if not nil, is called with each asynchronous event, before it reaches
	// [Device.Events] and before it is acknowledged: it must not close the object of
	// the event.
	Event func(Event)
}

// AdoptDevice makes a device of a context that owner opened, with attributes and events
// as from [Open]. close closes the device, and is refused with [ErrInUse] while anything
// made on it is open.
func AdoptDevice(name string, ctx cgo.Context, cfg DeviceConfig, owner DeviceOwner) (d *Device, close func() error, err error) {
	if d, err = newDevice(name, ctx, cfg, owner); err != nil {
		return nil, nil, err
	}
	return d, d.close, nil
}

// ModifyRaw changes the state of a queue pair by a call into C that other code makes, such
// as librdmacm's; no other change is under way meanwhile. The call returns which
// attributes it set and the resulting state of the queue pair, or, with an error, the
// attributes that were refused. It must not go to [StateReset].
func (q *QP) ModifyRaw(op string, call func(cgo.QP, *cgo.QPAttr) (mask, state uint32, err error)) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	return q.life.With(op, func() error {
		if call == nil {
			return opError(op, q.life.Label, ErrAttributes, "no call")
		}
		var a cgo.QPAttr
		mask, state, err := call(q.qp, &a)
		q.state.Store(state)
		q.entered(QPState(state))
		if err != nil {
			return q.modifyError(QPState(state), QPState(a.State), a.AH.GRH.DGID, AttrMask(mask), err)
		}
		q.keyed(&a, AttrMask(mask))
		return nil
	})
}

// SetPeer names the peer of a queue pair that other code connects, for errors.
func (q *QP) SetPeer(name string) { q.peer.Store(&name) }

// OwnSends keeps requesters off a queue pair until release is called, for code that posts
// the program's sends, such as a pacer. A queue pair that has an owner or a requester
// refuses it with [ErrInUse].
func OwnSends(q *QP, owner string) (release func(), err error) {
	q.modify.Lock()
	defer q.modify.Unlock()
	switch {
	case q.requester.Load() != nil:
		return nil, q.requested("take over sends of")
	case q.owner != "":
		return nil, opError("take over sends of", q.life.Label, ErrInUse, q.owner, " has them")
	}
	q.owner = owner
	return func() {
		q.modify.Lock()
		defer q.modify.Unlock()
		q.owner = ""
	}, nil
}

// OnEnd arranges for f to be called when the queue pair ends, or now if it has ended,
// with the error of [QP.Err], in a goroutine of its own. f replaces the function of an
// earlier call; nil removes it.
func (q *QP) OnEnd(f func(cause error)) {
	d := &q.death
	d.mu.Lock()
	defer d.mu.Unlock()
	d.then = f
	if d.cause != nil && f != nil {
		go f(d.cause)
	}
}

// AHAttrOf reads an address vector as C has it.
func AHAttrOf(raw *cgo.AHAttr) AHAttr { return ahFromRaw(raw) }
