package stream

import (
	"errors"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/rdmacm"
	"github.com/goverbs/goverbs/verbs/stream/internal/flow"
	"github.com/goverbs/goverbs/verbs/stream/internal/wire"
)

// parts is what a stream is made of.
type parts struct {
	pd     *verbs.PD
	recvCQ *verbs.CQ // what the peer sends
	sendCQ *verbs.CQ
	qp     *verbs.QP
	ring   *verbs.MR // that the peer writes to
	buffer *verbs.MR // that is written from
}

// make is the Setup of a stream. It is called again for each address of the
// peer that is tried.
func (p *parts) make(c *rdmacm.Setup, cfg *Config) error {
	err := p.close()
	if err == nil {
		err = p.create(c, cfg)
	}
	if err != nil {
		return errors.Join(err, p.close())
	}
	r := p.ring.Region()
	hello := wire.Hello{Addr: r.Addr, Size: uint32(r.Length), RKey: r.RKey, Messages: uint16(cfg.Messages)}
	c.QP, c.PrivateData = p.qp, hello.Encode()
	return nil
}

func (p *parts) create(c *rdmacm.Setup, cfg *Config) (err error) {
	recvs := cfg.Messages + flow.SpareReceives
	sends := wire.MaxMessages + 2*flow.SpareReceives
	if p.pd, err = c.Device.AllocPD(); err != nil {
		return err
	}
	vector := c.Device.NextVector()
	if p.recvCQ, err = c.Device.CreateCQ(verbs.CQConfig{Depth: recvs, Vector: vector}); err != nil {
		return err
	}
	if p.sendCQ, err = c.Device.CreateCQ(verbs.CQConfig{Depth: sends, Vector: vector}); err != nil {
		return err
	}
	if p.ring, err = p.pd.AllocMR(cfg.Buffer, verbs.MRConfig{Access: verbs.RemoteWrite}); err != nil {
		return err
	}
	p.qp, err = p.pd.CreateQP(verbs.QPConfig{SendCQ: p.sendCQ, RecvCQ: p.recvCQ, GID: c.GID,
		MaxSendWR: sends, MaxRecvWR: recvs, KeepAlive: cfg.KeepAlive, Access: verbs.LocalWrite | verbs.RemoteWrite})
	if err != nil {
		return err
	}
	b, err := p.qp.NewRecvBatch(recvs)
	if err != nil {
		return err
	}
	for range recvs {
		b.Recv(0)
	}
	_, err = b.Post()
	return err
}

func (p *parts) close() error {
	var err error
	if p.qp != nil {
		err = errors.Join(err, p.qp.Close())
	}
	for _, m := range []*verbs.MR{p.ring, p.buffer} {
		if m != nil {
			err = errors.Join(err, m.Close())
		}
	}
	for _, c := range []*verbs.CQ{p.recvCQ, p.sendCQ} {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	if p.pd != nil {
		err = errors.Join(err, p.pd.Close())
	}
	if err == nil {
		*p = parts{}
	}
	return err
}
