package native

import (
	"github.com/goverbs/goverbs/cgo/standin"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// memory is how many bytes each end has.
const memory = 64 << 10

// devices are the ends of connections.
var devices = [2]string{"mlx5_0", "mlx5_1"}

// end is a device, and memory that its peers may access.
type end struct {
	pd  *verbs.PD
	gid verbs.GIDEntry
	mr  *verbs.MR // only of those that ends returns
}

func (o *opened) end(device string) (e end, err error) {
	dev, err := verbs.Open(device, verbs.DeviceConfig{})
	if err != nil {
		return e, err
	}
	o.add(dev)
	if e.gid, err = dev.FindGID(verbs.GIDQuery{Port: 1}); err != nil {
		return e, err
	}
	if e.pd, err = dev.AllocPD(); err != nil {
		return e, err
	}
	o.add(e.pd)
	return e, nil
}

// ends are both, with memory.
func (o *opened) ends() (es [2]end, err error) {
	for i, name := range devices {
		if es[i], err = o.end(name); err != nil {
			return es, err
		}
		if es[i].mr, err = es[i].pd.AllocMR(memory, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic}); err != nil {
			return es, err
		}
		o.add(es[i].mr)
	}
	return es, nil
}

func (o *opened) qp(e end, cc verbs.CQConfig, cfg verbs.QPConfig) (*verbs.QP, *verbs.CQ, error) {
	cq, err := e.pd.Device().CreateCQ(cc)
	if err != nil {
		return nil, nil, err
	}
	o.add(cq)
	cfg.SendCQ, cfg.GID = cq, e.gid
	qp, err := e.pd.CreateQP(cfg)
	if err != nil {
		return nil, nil, err
	}
	o.add(qp)
	return qp, cq, nil
}

// connection is a queue pair to the memory of another end.
type connection struct {
	qp   *verbs.QP
	cq   *verbs.CQ
	near end
	far  end
}

// connect makes one. Its completion queue is cc; the peer's does nothing.
func (o *opened) connect(es [2]end, cc verbs.CQConfig) (c connection, err error) {
	c.near, c.far = es[0], es[1]
	if c.qp, c.cq, err = o.qp(c.near, cc, verbs.QPConfig{}); err != nil {
		return c, err
	}
	peer, _, err := o.qp(c.far, verbs.CQConfig{PollOnly: true}, verbs.QPConfig{})
	if err != nil {
		return c, err
	}
	return c, rig.Connect(c.qp, peer)
}

// loop is the same for loops in C.
func (c connection) loop() *standin.Requester {
	to := c.far.mr.Region()
	return &standin.Requester{QP: driver.RawQP(c.qp), CQ: driver.RawCQ(c.cq), Local: c.near.mr.SGE(0, memory), Remote: to.Addr, RKey: to.RKey}
}

// polled makes a connection for a loop in C.
func (o *opened) polled(es [2]end) (*standin.Requester, error) {
	c, err := o.connect(es, verbs.CQConfig{PollOnly: true})
	return c.loop(), err
}
