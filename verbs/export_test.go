package verbs

import "github.com/goverbs/goverbs/cgo"

// NewStandin wraps a queue pair and a completion queue that are no device's,
// in a state in which they can be used.
func NewStandin(qp cgo.QP, cq cgo.CQ, maxWR int) (*QP, *CQ) {
	q := &QP{qp: qp, typ: RC, cap: cgo.QPCap{MaxSendWR: uint32(maxWR), MaxRecvWR: uint32(maxWR),
		MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 64}}
	q.life.label = "stand-in qp"
	q.state.Store(uint32(StateRTS))
	c := &CQ{cq: cq, depth: maxWR}
	c.life.label = "stand-in cq"
	return q, c
}

var CheckTransition = checkTransition
