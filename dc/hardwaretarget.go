package dc

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// hardwareTarget is a DCT. There is no pool and no session: the device gives out
// responder contexts by itself.
type hardwareTarget struct {
	dct    *verbs.QP
	addr   Address
	gid    localGID
	log    *slog.Logger
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// newHardwareTarget makes a DCT, or returns [verbs.ErrUnsupported].
func newHardwareTarget(t *Target) (_ targetBackend, err error) {
	cfg := &t.cfg
	dev := cfg.PD.Device()
	if _, err := dev.Mlx5(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.queues.Close())
			t.queues = nil
		}
	}()
	h := &hardwareTarget{log: cfg.Logger}
	if err := h.gid.init(dev, cfg.GID, nil); err != nil {
		return nil, err
	}
	gid := h.gid.entry()
	mtu, err := localMTU(dev, gid, cfg.MTU)
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
	generation := rand.Uint64() | 1
	h.dct, err = cfg.PD.CreateQP(verbs.QPConfig{Type: verbs.DCT, SendCQ: t.cq, SRQ: t.srq, GID: gid, Access: cfg.Access, DCKey: dcKey(cfg.AccessKey, generation)})
	if err != nil {
		return nil, err
	}
	if err := driver.ActivateWith(h.dct, verbs.ConnectConfig{MTU: mtu}); err != nil {
		return nil, errors.Join(err, h.dct.Close())
	}
	h.addr = Address{GID: gid.GID, LID: port.LID, MTU: mtu, QPN: h.dct.Num(), Generation: generation, Hardware: true}
	ctx, cancel := context.WithCancel(context.Background())
	h.cancel = cancel
	changes := driver.FollowGID(ctx, dev, gid, nil)
	h.work.Go(func() { h.follow(changes) })
	return h, nil
}

// follow logs what cannot be mended: a DCT keeps the place in the GID table that it was
// made with, and another one would have another number, and so another address.
func (h *hardwareTarget) follow(changes iter.Seq2[verbs.GIDEntry, error]) {
	for now, err := range changes {
		if err != nil {
			h.log.Warn("dc: the local address is gone", "gid", h.addr.GID, "err", err)
		} else if now.Index != h.gid.entry().Index {
			h.log.Error("dc: the local address has moved in the GID table, which a DCT does not follow: close the target and make it anew", "gid", now)
		}
	}
}

func (h *hardwareTarget) address() Address { return h.addr }

func (h *hardwareTarget) generation() uint64 { return h.addr.Generation }

func (h *hardwareTarget) stats() TargetStats { return TargetStats{} }

func (h *hardwareTarget) stop() {
	h.cancel()
	h.work.Wait()
}

func (h *hardwareTarget) close() error { return h.dct.Close() }
