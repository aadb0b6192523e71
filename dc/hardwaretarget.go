package dc

import (
	"errors"
	"math/rand/v2"

	"github.com/goverbs/goverbs/verbs"
)

// hardwareTarget is a DCT. There is no pool and no session: the device gives out
// responder contexts by itself.
type hardwareTarget struct {
	dct  *verbs.QP
	addr Address
}

// newHardwareTarget makes a DCT, or answers [verbs.ErrUnsupported].
func newHardwareTarget(t *Target) (_ targetBackend, err error) {
	cfg := &t.cfg
	dev := cfg.PD.Device()
	if _, err := dev.Mlx5(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.closeQueues())
			t.cq, t.srq = nil, nil
		}
	}()
	gid, mtu, err := local(dev, cfg.GID, cfg.MTU)
	if err != nil {
		return nil, err
	}
	port, err := dev.Port(gid.Port)
	if err != nil {
		return nil, err
	}
	if err := t.prepare(cfg.Receives); err != nil {
		return nil, err
	}
	incarnation := rand.Uint64() | 1
	dct, err := cfg.PD.CreateQP(verbs.QPConfig{Type: verbs.DCT, SendCQ: t.cq, SRQ: t.srq, GID: gid, Access: cfg.Access, DCKey: dcKey(cfg.AccessKey, incarnation)})
	if err != nil {
		return nil, err
	}
	if err := dct.ActivateWith(verbs.ConnectConfig{MTU: mtu}); err != nil {
		return nil, errors.Join(err, dct.Close())
	}
	return &hardwareTarget{dct: dct, addr: Address{GID: gid.GID, LID: port.LID, MTU: mtu, QPN: dct.Num(), Incarnation: incarnation, Hardware: true}}, nil
}

func (h *hardwareTarget) address() Address { return h.addr }

func (h *hardwareTarget) incarnation() uint64 { return h.addr.Incarnation }

func (h *hardwareTarget) stats() TargetStats { return TargetStats{} }

func (h *hardwareTarget) owner(uint64) (uint64, bool) { return 0, false }

func (h *hardwareTarget) stop() {}

func (h *hardwareTarget) close() error { return h.dct.Close() }
