package dc

import (
	"errors"
	"math/rand/v2"

	"github.com/goverbs/goverbs/verbs"
)

// hardware makes a DCT of the target, or answers [verbs.ErrUnsupported]. There
// is no pool and no session: the device gives out responder contexts by itself.
func (t *Target) hardware() (err error) {
	dev := t.cfg.PD.Device()
	if _, err := dev.Mlx5(); err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		if t.cq != nil {
			err = errors.Join(err, t.cq.Close())
		}
		if t.srq != nil {
			err = errors.Join(err, t.srq.Close())
		}
		t.cq, t.srq = nil, nil
	}()
	gid, mtu, err := local(dev, t.cfg.GID, t.cfg.MTU)
	if err != nil {
		return err
	}
	port, err := dev.Port(gid.Port)
	if err != nil {
		return err
	}
	if t.srq, err = t.cfg.PD.CreateSRQ(verbs.SRQConfig{MaxWR: t.cfg.Receives}); err != nil {
		return err
	}
	if t.cq, err = dev.CreateCQ(verbs.CQConfig{Depth: t.cfg.Receives}); err != nil {
		return err
	}
	incarnation := rand.Uint64() | 1
	dct, err := t.cfg.PD.CreateQP(verbs.QPConfig{Type: verbs.DCT, SendCQ: t.cq, SRQ: t.srq, GID: gid, Access: t.cfg.Access, DCKey: dcKey(t.cfg.AccessKey, incarnation)})
	if err != nil {
		return err
	}
	if err := dct.ActivateWith(verbs.ConnectConfig{MTU: mtu}); err != nil {
		return errors.Join(err, dct.Close())
	}
	t.inbox.init(t.cq)
	t.responders = []*verbs.QP{dct}
	t.addr = Address{GID: gid.GID, LID: port.LID, MTU: mtu, QPN: dct.Num(), Incarnation: incarnation, Hardware: true}
	return nil
}
