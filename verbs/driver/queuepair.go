package driver

import (
	"io"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/hook"
	"github.com/goverbs/goverbs/verbs"
)

var (
	wrap         = hook.Wrap.(func(cgo.QP, cgo.CQ, int) (*verbs.QP, *verbs.CQ))
	rawQP        = hook.RawQP.(func(*verbs.QP) cgo.QP)
	rawCQ        = hook.RawCQ.(func(*verbs.CQ) cgo.CQ)
	modifyRaw    = hook.ModifyRaw.(func(*verbs.QP, string, func(cgo.QP, *cgo.QPAttr) (mask, state uint32, err error)) error)
	modifySteps  = hook.ModifySteps.(func(*verbs.QP, ...ModifyStep) error)
	initStep     = hook.InitStep.(func(*verbs.QP) ModifyStep)
	activateWith = hook.ActivateWith.(func(*verbs.QP, verbs.ConnectConfig) error)
	fail         = hook.Fail.(func(*verbs.QP, error) error)
	onEnd        = hook.OnEnd.(func(*verbs.QP, func(error)))
	setPeer      = hook.SetPeer.(func(*verbs.QP, string))
	keepAlive    = hook.KeepAlive.(func(*verbs.QP))
	ownSends     = hook.OwnSends.(func(*verbs.QP, string) (func(), error))
	signalsAll   = hook.SignalsAll.(func(*verbs.QP) bool)
	unfinished   = hook.Unfinished.(func(*verbs.CQ) bool)
	prepareLink  = hook.PrepareLink.(func(*verbs.Device, verbs.GIDEntry, verbs.LinkConfig) (*verbs.Link, verbs.Offer, error))
	connected    = hook.Connected.(func(*verbs.Link, io.Closer, verbs.Endpoint))
	flushedWC    = hook.FlushedWC.(func(uint64, uint32) verbs.WC)
	gather       = hook.Gather.(func([]byte, ...verbs.SGE) []byte)
	keepsOpen    = hook.KeepsOpen.(func(*verbs.Batch))
)

// Wrap puts the data path of package verbs on a queue pair and a completion queue that
// other code made and owns, such as a C library or a test. It allows polling, and batches
// of up to maxWR work requests with two scatter/gather entries and 64 bytes inline each.
// The queue pair is assumed to be connected. Neither object may be closed or waited on
// through the result.
func Wrap(qp cgo.QP, cq cgo.CQ, maxWR int) (*verbs.QP, *verbs.CQ) { return wrap(qp, cq, maxWR) }

// RawQP returns a queue pair as package cgo knows it: the address of its struct
// ibv_qp, for code that calls C on it. It is valid until Close.
func RawQP(q *verbs.QP) cgo.QP { return rawQP(q) }

// RawCQ returns a completion queue as package cgo knows it: the address of its
// struct ibv_cq, for code that calls C on it. It is valid until Close.
func RawCQ(c *verbs.CQ) cgo.CQ { return rawCQ(c) }

// ModifyRaw changes the state of a queue pair by a call into C that other code makes, such
// as librdmacm's; no other change is under way meanwhile. The call returns which
// attributes it set and the resulting state of the queue pair, or, with an error, the
// attributes that were refused. It must not go to [verbs.StateReset].
func ModifyRaw(q *verbs.QP, op string, call func(cgo.QP, *cgo.QPAttr) (mask, state uint32, err error)) error {
	return modifyRaw(q, op, call)
}

// ModifyStep is one of several modifications.
type ModifyStep = struct {
	Attr verbs.QPAttr
	Mask verbs.AttrMask
}

// ResetStep returns what [verbs.QP.ToReset] does.
func ResetStep() ModifyStep {
	return ModifyStep{Attr: verbs.QPAttr{State: verbs.StateReset}, Mask: verbs.AttrState}
}

// InitStep returns what [verbs.QP.Init] does.
func InitStep(q *verbs.QP) ModifyStep { return initStep(q) }

// ModifySteps is [verbs.QP.Modify] for each step in turn, in one crossing into C. It stops at
// the first one that fails; [verbs.QP.State] shows how far it came. All steps are checked
// before the first one is carried out.
func ModifySteps(q *verbs.QP, steps ...ModifyStep) error { return modifySteps(q, steps...) }

// ActivateWith is [verbs.QP.Activate] with the timers and limits that a DCI or DCT takes from
// cfg; UD and SRD take none.
func ActivateWith(q *verbs.QP, cfg verbs.ConnectConfig) error { return activateWith(q, cfg) }

// Fail ends a queue pair for a reason of the caller's, such as a peer that has fallen
// silent. [verbs.QP.Err] then returns that cause, unless the queue pair had ended before, and
// outstanding work requests complete as [verbs.WCFlushed].
func Fail(q *verbs.QP, cause error) error { return fail(q, cause) }

// OnEnd arranges for f to be called when the queue pair ends, or now if it has ended,
// with the error of [verbs.QP.Err], in a goroutine of its own. f replaces the function of an
// earlier call; nil removes it.
func OnEnd(q *verbs.QP, f func(cause error)) { onEnd(q, f) }

// SetPeer names the peer of a queue pair that other code connects, for errors.
func SetPeer(q *verbs.QP, name string) { setPeer(q, name) }

// KeepAlive starts the keep-alive of [verbs.QPConfig.KeepAlive] on a queue pair that other code
// has connected, with a peer that allows [verbs.RemoteWrite]. Without one it does nothing.
func KeepAlive(q *verbs.QP) { keepAlive(q) }

// OwnSends keeps requesters off a queue pair until release is called, for code that posts
// the program's sends, such as a pacer. A queue pair that has an owner or a requester
// refuses it with [verbs.ErrInUse].
func OwnSends(q *verbs.QP, owner string) (release func(), err error) { return ownSends(q, owner) }

// KeepsOpen says that the program keeps the queue pair of a batch open while the batch posts, and all
// that requests name, so that the batch need not.
func KeepsOpen(b *verbs.Batch) { keepsOpen(b) }

// SignalsAll reports whether all sends complete visibly ([verbs.QPConfig.SignalAll]).
func SignalsAll(q *verbs.QP) bool { return signalsAll(q) }

// Unfinished reports whether a completion queue has completions that the program has not polled,
// or sends that the program posted itself may still complete there. They would be lost to a
// dispatcher. What was found stays in the queue. Only queue pairs with [verbs.QPConfig.Extended]
// or operations that need it have their sends under way counted.
func Unfinished(c *verbs.CQ) bool { return unfinished(c) }

// PrepareLink makes the parts of a link for other code that connects the queue pair, as
// package rdmacm does. The peer must be sent the offer. [Connected] completes the
// link; if the connection fails, Close it. The device is for a link with no PD in its
// config, and stays open.
func PrepareLink(dev *verbs.Device, gid verbs.GIDEntry, cfg verbs.LinkConfig) (*verbs.Link, verbs.Offer, error) {
	return prepareLink(dev, gid, cfg)
}

// Connected completes a link of [PrepareLink]. peer is the endpoint that the peer sent;
// connection, if there is one, closes before the rest.
func Connected(l *verbs.Link, connection io.Closer, peer verbs.Endpoint) {
	connected(l, connection, peer)
}

// FlushedWC returns the completion of a request that a layer kept, and never posted,
// because its queue pair ended.
func FlushedWC(id uint64, qpNum uint32) verbs.WC { return flushedWC(id, qpNum) }

// Gather appends the bytes of this process's memory that sges name, as a request with
// [verbs.Inline] sends them. It is for layers that post a request after the call that made it
// has returned. The memory has to be mapped.
func Gather(dst []byte, sges ...verbs.SGE) []byte { return gather(dst, sges...) }
