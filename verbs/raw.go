package verbs

import "github.com/goverbs/goverbs/cgo"

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
	q.life.label = "wrapped qp"
	q.state.Store(uint32(StateRTS))
	c := &CQ{cq: cq, depth: maxWR}
	c.life.label = "wrapped cq"
	return q, c
}
