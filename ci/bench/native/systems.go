package native

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/pacer"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// systemRows are those of packages dc, lockoffload and pacer.
func systemRows() []row {
	inC := besideReads("dc_in_c", nil, dcInC)
	inC.inC = true
	list := []row{
		inC,
		besideReads("dc_read", measure.AtMostOver(180), dcRead),
		besideReads("lock_read", measure.AtMostOver(300), lockRead),
		lockUpdate(),
		pacerRead(),
	}
	return append(list, rates("lock_read", func(o *opened) (func() (user, error), error) {
		l, err := o.locks()
		if err != nil {
			return nil, err
		}
		return func() (user, error) {
			c, err := l.client(o)
			return lockReader(c), err
		}, nil
	})...)
}

// initiator makes one for devices with DCI queue pairs.
func (o *opened) initiator(e end) (*dc.Initiator, error) {
	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: e.pd, GID: e.gid, Backend: dc.Hardware})
	if err == nil {
		o.add(i)
	}
	return i, err
}

func dcRead(o *opened, es [2]end) (operations, error) {
	t, err := dc.NewTarget(dc.TargetConfig{PD: es[1].pd, GID: es[1].gid, Backend: dc.Hardware})
	if err != nil {
		return nil, err
	}
	o.add(t)
	i, err := o.initiator(es[0])
	if err != nil {
		return nil, err
	}
	p, err := i.Resolve(t.Address(), 0)
	if err != nil {
		return nil, err
	}
	r := dc.Request{Op: dc.Read, Local: es[0].mr.SGE(0, read), Remote: es[1].mr.Region().At(0)}
	return each(func(ctx context.Context) error { return i.Do(ctx, p, r) }), nil
}

// dcInC is a READ by a DCI in a loop in C: what dynamic connections take of the library and the device.
func dcInC(o *opened, es [2]end) (operations, error) {
	t, err := dc.NewTarget(dc.TargetConfig{PD: es[1].pd, GID: es[1].gid, Backend: dc.Hardware})
	if err != nil {
		return nil, err
	}
	o.add(t)
	qp, cq, err := o.qp(es[0], verbs.CQConfig{PollOnly: true}, verbs.QPConfig{Type: verbs.DCI})
	if err != nil {
		return nil, err
	}
	if err := driver.ActivateWith(qp, verbs.ConnectConfig{MTU: t.Address().MTU}); err != nil {
		return nil, err
	}
	loop := connection{qp: qp, cq: cq, near: es[0], far: es[1]}.loop()
	to := standin.DCT{Number: t.Address().QPN, Key: t.Address().Generation, GID: es[1].gid.GID, Index: es[0].gid.Index}
	return func(_ context.Context, n int) (time.Duration, error) { return loop.ReadsOf(to, read, n) }, nil
}

// pacerRead is beside the same READ by a requester.
func pacerRead() row {
	return row{name: "pacer_read", target: measure.AtMostOver(120), baseline: "requester_read", open: func(o *opened) (ours, base operations, err error) {
		es, err := o.ends()
		if err != nil {
			return nil, nil, err
		}
		c, err := o.connect(es, verbs.CQConfig{})
		if err != nil {
			return nil, nil, err
		}
		q, err := pacer.Wrap(c.qp, c.cq)
		if err != nil {
			return nil, nil, err
		}
		o.add(q)
		from, into := c.far.mr.Region().At(0), c.near.mr.SGE(0, read)
		base, err = requesterRead(o, es)
		return each(func(ctx context.Context) error { return q.Read(ctx, from, into) }), base, err
	}}
}

// locks is a target with locks, and both ends.
type locks struct {
	es  [2]end
	srv *lockoffload.Server
}

// lease is longer than a row takes, so that no heartbeat comes in between.
const lease = 10 * time.Minute

func (o *opened) locks() (*locks, error) {
	l := &locks{}
	var err error
	if l.es, err = o.ends(); err != nil {
		return nil, err
	}
	layout := lockoffload.Layout{Slots: 64, Size: read}
	mr, err := l.es[1].pd.AllocMR(layout.Bytes(), verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic})
	if err != nil {
		return nil, err
	}
	o.add(mr)
	region, err := lockoffload.NewRegion(mr, layout)
	if err != nil {
		return nil, err
	}
	l.srv, err = lockoffload.NewServer(lockoffload.ServerConfig{PD: l.es[1].pd, Region: region, GID: l.es[1].gid, Lease: lease, Grace: -1})
	if err == nil {
		o.add(l.srv)
	}
	return l, err
}

func (l *locks) client(o *opened) (*lockoffload.Client, error) {
	qp, cq, err := o.qp(l.es[0], verbs.CQConfig{}, verbs.QPConfig{})
	if err != nil {
		return nil, err
	}
	near, err := qp.Endpoint()
	if err != nil {
		return nil, err
	}
	s, err := l.srv.Admit(nil)
	if err != nil {
		return nil, err
	}
	far, err := s.Endpoint()
	if err != nil {
		return nil, err
	}
	if err := s.Connect(near); err != nil {
		return nil, err
	}
	if err := qp.Connect(far, verbs.ConnectConfig{}); err != nil {
		return nil, err
	}
	var in lockoffload.SessionInfo
	if err := in.UnmarshalBinary(far.Data); err != nil {
		return nil, err
	}
	c, err := lockoffload.NewClient(lockoffload.Config{PD: l.es[0].pd, QP: qp, CQ: cq, Session: in})
	if err == nil {
		o.add(c)
	}
	return c, err
}

// lockReader READs a slot for each goroutine.
func lockReader(c *lockoffload.Client) user {
	return func(k int) func(context.Context) error {
		dst := make([]byte, read)
		return func(ctx context.Context) (err error) {
			var res lockoffload.Result
			dst, res, err = c.Read(ctx, k, dst)
			if err == nil && res.Protocol != lockoffload.ProtocolRead {
				err = fmt.Errorf("carried out as %v", res.Protocol)
			}
			return err
		}
	}
}

func lockRead(o *opened, _ [2]end) (operations, error) {
	l, err := o.locks()
	if err != nil {
		return nil, err
	}
	c, err := l.client(o)
	return each(lockReader(c)(0)), err
}

// lockUpdate counts in a record, as the loop in C does.
func lockUpdate() row {
	const chain = "lock and READ, WRITE and unlock in C"
	return row{name: "lock_update", target: measure.AtMostOver(400), baseline: chain, open: func(o *opened) (ours, base operations, err error) {
		l, err := o.locks()
		if err != nil {
			return nil, nil, err
		}
		c, err := l.client(o)
		if err != nil {
			return nil, nil, err
		}
		if _, err := c.Update(context.Background(), 0, func([]byte) ([]byte, error) { return make([]byte, read), nil }); err != nil {
			return nil, nil, err
		}
		count := func(old []byte) ([]byte, error) {
			binary.LittleEndian.PutUint64(old, binary.LittleEndian.Uint64(old)+1)
			return old, nil
		}
		ours = each(func(ctx context.Context) error {
			_, err := c.Update(ctx, 0, count)
			return err
		})
		loop, err := o.polled(l.es)
		return ours, func(_ context.Context, n int) (time.Duration, error) { return loop.Updates(read, n) }, err
	}}
}
