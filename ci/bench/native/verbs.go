package native

import (
	"context"
	"time"

	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

func verbsRows() []row {
	list := []row{
		besideReads("crossing_read", nil, crossingRead),
		besideReads("batch_read", measure.AtMostOver(60), batchRead),
		besideReads("requester_read", measure.AtMostOver(130), requesterRead),
		datagrams(),
	}
	list = append(list, rates("requester", func(o *opened) (func() (user, error), error) {
		es, err := o.ends()
		return func() (user, error) { return requester(o, es) }, err
	})...)
	return append(list, loopsInC())
}

// crossingRead is a READ that C carries out in one call: what a crossing alone adds to the loop.
func crossingRead(o *opened, es [2]end) (operations, error) {
	l, err := o.polled(es)
	if err != nil {
		return nil, err
	}
	one := l.Read(read)
	return each(func(context.Context) error { return one() }), nil
}

// batchRead is a READ by a batch of one and one crossing.
func batchRead(o *opened, es [2]end) (operations, error) {
	c, err := o.connect(es, verbs.CQConfig{PollOnly: true})
	if err != nil {
		return nil, err
	}
	b, err := c.qp.NewBatch(1)
	if err != nil {
		return nil, err
	}
	from, into := c.far.mr.Region().At(0), c.near.mr.SGE(0, read)
	var wcs [1]verbs.WC
	return each(func(context.Context) error {
		b.Read(1, verbs.Signaled, from, into)
		return postPoll(b, c.cq, &wcs)
	}), nil
}

// postPoll posts a batch with one signaled request and polls until that has completed.
func postPoll(b *verbs.Batch, cq *verbs.CQ, wcs *[1]verbs.WC) error {
	_, n, err := b.PostPoll(cq, wcs[:], 1000)
	return await(cq, wcs, n, err)
}

// await polls until there is a completion, after a poll that returned n and err.
func await(cq *verbs.CQ, wcs *[1]verbs.WC, n int, err error) error {
	for n == 0 && err == nil {
		n, err = cq.PollSpin(wcs[:], 1000)
	}
	if err != nil {
		return err
	}
	return wcs[0].Err()
}

// requester is one with nothing configured; each goroutine READs into memory of its own.
func requester(o *opened, es [2]end) (user, error) {
	c, err := o.connect(es, verbs.CQConfig{})
	if err != nil {
		return nil, err
	}
	q, err := verbs.NewRequester(c.qp, verbs.RequesterConfig{})
	if err != nil {
		return nil, err
	}
	o.add(q)
	from := c.far.mr.Region().At(0)
	return func(k int) func(context.Context) error {
		into := c.near.mr.SGE(k*read, read)
		return func(ctx context.Context) error { return q.Read(ctx, from, into) }
	}, nil
}

func requesterRead(o *opened, es [2]end) (operations, error) {
	u, err := requester(o, es)
	if err != nil {
		return nil, err
	}
	return each(u(0)), nil
}

// loopsInC are two loops in C on queue pairs of their own beside one: what two CPUs carry at most, as
// the devices share a lock.
func loopsInC() row {
	return row{name: "c_rate_two_loops", inC: true, baseline: "one loop in C", rate: true, open: func(o *opened) (ours, base operations, err error) {
		es, err := o.ends()
		if err != nil {
			return nil, nil, err
		}
		var loops [2]*standin.Requester
		for i := range loops {
			if loops[i], err = o.polled(es); err != nil {
				return nil, nil, err
			}
		}
		const chunk = 500
		do := func(k int) func(context.Context) error {
			return func(context.Context) error {
				_, err := loops[k].Reads(read, 1, 0, chunk)
				return err
			}
		}
		scaled := func(ops operations) operations {
			return func(ctx context.Context, n int) (time.Duration, error) { return ops(ctx, max(n/chunk, 2)) }
		}
		return scaled(together(2, do)), scaled(together(1, do)), nil
	}}
}

const udLoop = "UD in C"

// datagrams are a message each way by UD queue pairs, in turn.
func datagrams() row {
	return row{name: "ud_pingpong_64B", baseline: udLoop, open: func(o *opened) (ours, base operations, err error) {
		es, err := o.ends()
		if err != nil {
			return nil, nil, err
		}
		cs, sides, err := o.datagrams(es, verbs.CQConfig{PollOnly: true})
		return each(func(context.Context) error {
			for i, from := range sides {
				to := sides[1-i]
				if err := to.receive(); err != nil {
					return err
				}
				from.batch.SendTo(1, verbs.Signaled, from.to, from.out)
				if err := postPoll(from.batch, from.cq, &from.wcs); err != nil {
					return err
				}
				if err := await(to.cq, &to.wcs, 0, nil); err != nil {
					return err
				}
			}
			return nil
		}), pingPongInC(cs), err
	}}
}

func pingPongInC(cs [2]*standin.Datagrams) operations {
	return func(_ context.Context, n int) (time.Duration, error) { return cs[0].PingPong(cs[1], read, n) }
}

// waitedInC is a message each way between two threads that wait for it by events: how far the mean is above
// the best where every message wakes a thread.
func waitedInC() row {
	return row{name: "c_send_64B", inC: true, few: 40, waited: true, open: func(o *opened) (ours, base operations, err error) {
		es, err := o.ends()
		if err != nil {
			return nil, nil, err
		}
		cs, _, err := o.datagrams(es, verbs.CQConfig{})
		return func(_ context.Context, n int) (time.Duration, error) { return cs[0].WaitedPingPong(cs[1], read, n) }, nil, err
	}}
}

// datagrams returns two UD queue pairs for loops in C, and the same for ours.
func (o *opened) datagrams(es [2]end, queue verbs.CQConfig) (cs [2]*standin.Datagrams, sides [2]*datagramEnd, err error) {
	var qps [2]*verbs.QP
	var cqs [2]*verbs.CQ
	for i, e := range es {
		if qps[i], cqs[i], err = o.qp(e, queue, verbs.QPConfig{Type: verbs.UD}); err != nil {
			return cs, sides, err
		}
		if err := qps[i].Activate(); err != nil {
			return cs, sides, err
		}
		cs[i] = &standin.Datagrams{QP: driver.RawQP(qps[i]), CQ: driver.RawCQ(cqs[i]), Local: e.mr.SGE(0, memory), QKey: verbs.DefaultQKey, GID: e.gid.GID, Index: e.gid.Index}
	}
	for i, e := range es {
		if sides[i], err = newDatagramEnd(o, e, qps[i], cqs[i], es[1-i], qps[1-i]); err != nil {
			return cs, sides, err
		}
	}
	return cs, sides, nil
}

// datagramEnd sends to the other one, and receives.
type datagramEnd struct {
	batch   *verbs.Batch
	recv    *verbs.RecvBatch
	cq      *verbs.CQ
	to      verbs.Destination
	in, out verbs.SGE
	wcs     [1]verbs.WC
}

func newDatagramEnd(o *opened, e end, qp *verbs.QP, cq *verbs.CQ, far end, peer *verbs.QP) (*datagramEnd, error) {
	ah, err := e.pd.CreateAH(verbs.AHAttr{GID: far.gid.GID, SGIDIndex: e.gid.Index, Port: 1, HopLimit: 64})
	if err != nil {
		return nil, err
	}
	o.add(ah)
	d := &datagramEnd{cq: cq, to: verbs.Destination{AH: ah, QPN: peer.Num(), QKey: verbs.DefaultQKey}}
	d.in, d.out = e.mr.SGE(0, verbs.GRHSize+read), e.mr.SGE(verbs.GRHSize+read, read)
	if d.batch, err = qp.NewBatch(1); err != nil {
		return nil, err
	}
	d.recv, err = qp.NewRecvBatch(1)
	return d, err
}

func (d *datagramEnd) receive() error {
	d.recv.Recv(2, d.in)
	_, err := d.recv.Post()
	return err
}
