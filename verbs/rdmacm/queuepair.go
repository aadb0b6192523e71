package rdmacm

import (
	"time"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// toInit moves a queue pair to StateInit, or checks that one that is there
// is on the right port. What its peer may do stays as the program chose.
func (i *cmID) toInit(q *verbs.QP) error {
	state := q.State()
	switch {
	case state == verbs.StateReset:
		return i.move(q, "set up", func(qp cgo.QP, a *cgo.QPAttr) (mask, state uint32, err error) {
			mask, err = cgo.CMInit(i.id, qp, uint32(driver.InitStep(q).Attr.Access), a)
			if err != nil {
				return mask, uint32(verbs.StateReset), err
			}
			return mask, uint32(verbs.StateInit), nil
		})
	case state != verbs.StateInit && !(state == verbs.StateRTS && q.Type() == verbs.UD):
		return operr.New("set up", i.life.Label, verbs.ErrState, "the queue pair is in ", state)
	}
	var a cgo.QPAttr
	var mask uint32
	err := i.do("prepare", func() (err error) {
		mask, err = cgo.CMInitQPAttr(i.id, uint32(verbs.StateInit), &a)
		return err
	})
	if err != nil {
		return err
	}
	set := verbs.AttrMask(mask) &^ (verbs.AttrState | verbs.AttrAccess)
	if state == verbs.StateRTS { // it serves several peers
		set = verbs.AttrQKey
	}
	return q.Modify(verbs.QPAttr{PKeyIndex: a.PKeyIndex, Port: a.PortNum, QKey: a.QKey}, set)
}

func (i *cmID) setAckTimeout(d time.Duration) error {
	switch {
	case d < 0:
		return operr.New("set up", i.life.Label, verbs.ErrAttributes, "AckTimeout ", d)
	case d == 0:
		d = verbs.DefaultAckTimeout
	}
	return i.do("set timeout of", func() error { return cgo.CMSetAckTimeout(i.id, uint8(verbs.AckTimeoutFor(d))) })
}

// toRTS connects the queue pair, in one crossing into C. Negative depths mean
// those of the connection manager; establish tells the peer, on the side that
// dials.
func (i *cmID) toRTS(q *verbs.QP, responder, initiator int, establish bool) error {
	return i.move(q, "connect", func(qp cgo.QP, a *cgo.QPAttr) (mask, state uint32, err error) {
		return cgo.CMConnected(i.id, qp, responder, initiator, establish, a)
	})
}

// move is a call that fetches attributes from the connection manager and sets
// them.
func (i *cmID) move(q *verbs.QP, op string, call func(cgo.QP, *cgo.QPAttr) (mask, state uint32, err error)) error {
	return i.life.With(op, func() error { return driver.ModifyRaw(q, op, call) })
}
