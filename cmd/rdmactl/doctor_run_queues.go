package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/verbs"
)

var queueTests = []selfTest{
	{feature: "shared receive queue, limit event", run: trySRQ},
	{feature: "RC, UC, UD queue pairs, all transitions", run: tryTransitions},
	{feature: "enhanced connection establishment", run: tryECE},
	{feature: "raw packet queue pairs", run: tryRawPacket},
}

// trySRQ: two queue pairs take receives from one queue, in order, and the
// device reports when few are left.
func trySRQ(b *bench) (string, error) {
	y, err := b.base(b.there, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	srq, err := y.pd.CreateSRQ(verbs.SRQConfig{MaxWR: 16})
	if _, err := keep(b, srq, err); err != nil {
		return "", err
	}
	recv, err := srq.NewRecvBatch(8)
	if err != nil {
		return "", err
	}
	for i := range 8 {
		recv.Recv(uint64(i), y.mr.SGE(i*64, 64))
	}
	if _, err := recv.Post(); err != nil {
		return "", err
	}
	if err := srq.Arm(4); err != nil {
		return "", err
	}
	events := y.dev.Events(b.ctx)
	var senders []*end
	for range 2 {
		x, err := b.base(b.here, verbs.CQConfig{})
		if err != nil {
			return "", err
		}
		if err := x.join(b.here.gid, verbs.QPConfig{}); err != nil {
			return "", err
		}
		if err := y.join(b.there.gid, verbs.QPConfig{SRQ: srq}); err != nil {
			return "", err
		}
		if err := connect(x.qp, y.qp); err != nil {
			return "", err
		}
		senders = append(senders, x)
	}
	for i := range 6 {
		x := senders[i%2]
		fill(x.mr.Bytes()[:64])
		if err := x.do(1, func(b *verbs.Batch) { b.Send(1, verbs.Signaled, x.mr.SGE(0, 64)) }); err != nil {
			return "", err
		}
		wcs, err := y.done(1)
		if err != nil {
			return "", err
		}
		if err := errors.Join(same("the receive that was taken", wcs[0].ID(), uint64(i)),
			sameBytes("what was sent", y.mr.Bytes()[i*64:i*64+64], x.mr.Bytes()[:64])); err != nil {
			return "", err
		}
	}
	for ev := range events {
		if ev.Type == verbs.EventSRQLimit && ev.SRQ == srq {
			return "", nil
		}
	}
	return "", fmt.Errorf("the limit event: %w", b.ctx.Err())
}

// tryTransitions: a device has one of the transports at least. Several have no
// UC.
func tryTransitions(b *bench) (string, error) {
	var have, lack []string
	var refusal error
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
		switch err := b.transitions(typ); {
		case err == nil:
			have = append(have, typ.String())
		case errors.Is(err, verbs.ErrUnsupported):
			lack, refusal = append(lack, typ.String()), err
		default:
			return "", fmt.Errorf("%v: %w", typ, err)
		}
	}
	switch {
	case len(have) == 0:
		return "", refusal
	case len(lack) > 0:
		return fmt.Sprintf("%s; refused: %s: %v", strings.Join(have, ", "), strings.Join(lack, ", "), refusal), nil
	}
	return "", nil
}

func (b *bench) transitions(typ verbs.QPType) error {
	x, y, err := b.ends(verbs.QPConfig{Type: typ, KeepReset: true}, verbs.CQConfig{})
	if err != nil {
		return err
	}
	is := func(want verbs.QPState) error {
		attr, err := x.qp.Query()
		if err != nil {
			return err
		}
		return same("the state", attr.State, want)
	}
	for range 2 { // the second time from RESET, where the first ended
		for _, q := range []*verbs.QP{x.qp, y.qp} {
			if err := q.Init(); err != nil {
				return err
			}
		}
		if err := errors.Join(is(verbs.StateInit), connect(x.qp, y.qp), is(verbs.StateRTS)); err != nil {
			return err
		}
		if err := errors.Join(x.qp.ToError(), is(verbs.StateError), x.qp.ToReset(), is(verbs.StateReset), y.qp.ToReset()); err != nil {
			return err
		}
	}
	return nil
}

// tryRawPacket sends nothing: the frames would be foreign to the network.
func tryRawPacket(b *bench) (string, error) {
	e, err := b.base(b.here, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	port, err := e.dev.Port(b.here.port)
	if err != nil {
		return "", err
	}
	if port.LinkLayer != verbs.LinkEthernet {
		return "", unsupported("the link is " + port.LinkLayer.String())
	}
	switch err := e.join(b.here.gid, verbs.QPConfig{Type: verbs.RawPacket}); {
	case errors.Is(err, syscall.EPERM):
		return "", notTried("it needs CAP_NET_RAW: " + err.Error())
	case err != nil:
		return "", err
	}
	return "made and activated; nothing was sent", e.qp.Activate()
}

// tryECE connects queue pairs that offer all that their devices have.
func tryECE(b *bench) (string, error) {
	x, y, err := b.ends(verbs.QPConfig{ECE: true}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	if _, err := x.qp.ECE(); err != nil {
		return "", err
	}
	if err := connect(x.qp, y.qp); err != nil {
		return "", err
	}
	here, err := x.qp.ECE()
	if err != nil {
		return "", err
	}
	there, err := y.qp.ECE()
	if err != nil {
		return "", err
	}
	if err := same("what the other end took", there, here); err != nil && b.here == b.there {
		return "", err
	}
	return fmt.Sprintf("vendor %#x, options %#x", here.Vendor, here.Options), x.readsAndWrites(y)
}
