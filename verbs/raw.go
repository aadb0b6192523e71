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

// Wrap puts the data path of this package on a queue pair and a completion
// queue that other code made and owns, such as a C library or a test: batches
// of up to maxWR work requests with two scatter/gather entries and 64 bytes
// inline each, and polling. The queue pair is taken to be connected. Neither
// object may be closed or waited on through what Wrap answers.
func Wrap(qp cgo.QP, cq cgo.CQ, maxWR int) (*QP, *CQ) {
	q := &QP{qp: qp, typ: RC, cap: cgo.QPCap{MaxSendWR: uint32(maxWR), MaxRecvWR: uint32(maxWR),
		MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 64}}
	q.life.Label = "wrapped qp"
	q.state.Store(uint32(StateRTS))
	c := &CQ{cq: cq, depth: maxWR}
	c.life.Label = "wrapped cq"
	return q, c
}

// WrapDevice makes a device of a context that other code opened and owns, such
// as a test, with these attributes. Nobody reads its asynchronous events, and
// Close leaves the context open.
func WrapDevice(name string, ctx cgo.Context, attr DeviceAttr) *Device {
	d := &Device{name: name, ctx: ctx, attr: attr, log: slog.New(slog.DiscardHandler), async: newAsyncReader(), release: func() error { return nil }}
	d.life.Label = name
	d.async.end()
	close(d.async.done)
	return d
}
