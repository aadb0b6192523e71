package verbs

import (
	"fmt"
	"io"
	"syscall"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/internal/flow"
	"github.com/goverbs/goverbs/verbs/internal/life"
)

// steering is a rule in force.
type steering struct {
	life life.Life
	dev  *Device
	flow cgo.Flow
}

// createFlow is [experimental.CreateFlow].
func (q *QP) createFlow(r flow.Rule) (io.Closer, error) {
	const op = "create flow on"
	if err := q.life.Open(op); err != nil {
		return nil, err
	}
	a, err := r.Attr()
	if q.typ != RawPacket && q.typ != UD {
		err = fmt.Errorf("a queue pair of %v takes no packets by rules", q.typ)
	}
	if err != nil {
		return nil, opError(op, q.life.Label, class(ErrAttributes, err))
	}
	a.Port = q.gid.Port
	f := &steering{dev: q.pd.dev}
	if err := f.life.Attach("flow", life.Label("flow"), &q.life); err != nil {
		return nil, err
	}
	if f.flow, err = cgo.CreateFlow(q.qp, &a); err != nil {
		f.life.Detach("flow")
		detail := "the device steers no flows"
		switch {
		case isErrno(err, syscall.EINVAL):
			err, detail = class(ErrAttributes, err), "the device cannot match these headers, masks or priority"
		case isErrno(err, syscall.EPERM):
			detail = "it needs CAP_NET_RAW"
		case isErrno(err, syscall.EEXIST), isErrno(err, syscall.EBUSY):
			detail = "there is such a rule"
		case isErrno(err, syscall.ENOMEM), isErrno(err, syscall.ENOSPC):
			detail = "the device has no room, or no such priority"
		}
		return nil, opError(op, q.life.Label, unsupported(err), detail)
	}
	return f, nil
}

// Close ends the rule. Closing twice is not an error.
func (f *steering) Close() error {
	return f.life.Close("flow", nil, func() error { return f.dev.destroyed(cgo.DestroyFlow(f.flow)) })
}
