package verbs

import (
	"io"
	"log/slog"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/boottime"
	"github.com/goverbs/goverbs/internal/hook"
	"github.com/goverbs/goverbs/internal/sysroot"
)

// init sets the functions of packages driver and experimental, which have their comments.
func init() {
	boottime.Use(cgo.Boottime)
	sysroot.Use(cgo.SysfsPath())
	hook.AdoptDevice, hook.WrapDevice, hook.Wrap = adoptDevice, wrapDevice, wrap
	hook.SoftRoCE, hook.ResetRaces = (*Device).softRoCE, (*Device).resetRaces
	hook.FindGIDAgain, hook.FollowGID, hook.CreateCQFor = (*Device).findGIDAgain, followGID, (*Device).createCQFor
	hook.RawQP, hook.RawCQ = func(q *QP) cgo.QP { return q.qp }, func(c *CQ) cgo.CQ { return c.cq }
	hook.ModifyRaw, hook.ModifySteps, hook.InitStep, hook.ActivateWith = (*QP).modifyByCall, (*QP).modifyBySteps, (*QP).initStep, (*QP).activateWith
	hook.Fail, hook.OnEnd, hook.SetPeer, hook.KeepAlive = (*QP).fail, (*QP).onEnd, (*QP).setPeer, (*QP).keepAlive
	hook.OwnSends, hook.SignalsAll, hook.Unfinished = ownSends, (*QP).signalsAll, (*CQ).unfinished
	hook.PrepareLink, hook.Connected = prepareLink, (*Link).connected
	hook.AHAttr, hook.FlushedWC, hook.Gather = ahFromRaw, flushedWC, gather
	hook.Clock, hook.Limit, hook.Times = (*Call).clock, (*Call).limit, (*Call).clocked
	hook.DispatchOwn = Polled.dispatchOwn
	hook.KeepsOpen = func(b *Batch) { b.owned, b.kept = true, true }

	hook.RegisterDMABuf, hook.RegisterAddressSpace, hook.SGEOf, hook.Prefetch = (*PD).registerDMABuf, (*PD).registerAddressSpace, (*MR).sgeOf, (*MR).prefetch
	hook.AllocDeviceMemory = func(d *Device, size, align int) (io.Closer, error) {
		m, err := d.allocDeviceMemory(size, align)
		if err != nil {
			return nil, err
		}
		return m, nil
	}
	hook.RegisterDeviceMemory = func(p *PD, m io.Closer, off, length int, cfg MRConfig) (*MR, error) {
		dm, _ := m.(*deviceMemory)
		return p.registerDeviceMemory(dm, off, length, cfg)
	}
	hook.AllocNullMR, hook.CreateFlow, hook.Flush = (*PD).allocNullMR, (*QP).createFlow, (*Batch).flush
	hook.SetRate, hook.SetUDPSourcePort, hook.SetLAGPort, hook.LAGPort = (*QP).setRate, (*QP).setUDPSourcePort, (*QP).setLAGPort, (*QP).lagPort
	hook.Sender, hook.CreateAHFromWCEx, hook.AHNumber = (*WCEx).from, (*PD).createAHFromWCEx, (*AH).number
}

func wrap(qp cgo.QP, cq cgo.CQ, maxWR int) (*QP, *CQ) {
	q := &QP{qp: qp, typ: RC, cap: cgo.QPCap{MaxSendWR: uint32(maxWR), MaxRecvWR: uint32(maxWR),
		MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 64}}
	q.life.Label = "wrapped qp"
	q.state.Store(uint32(StateRTS))
	c := &CQ{cq: cq, depth: maxWR}
	c.life.Label = "wrapped cq"
	q.sendCQ, q.recvCQ = c, c
	c.senders = []*QP{q}
	return q, c
}

func wrapDevice(name string, ctx cgo.Context, attr DeviceAttr) *Device {
	d := &Device{name: name, ctx: ctx, attr: attr, log: slog.New(slog.DiscardHandler), async: newAsyncReader(), owner: deviceOwner{Release: func() error { return nil }}}
	d.life.Label = name
	d.async.end()
	close(d.async.done)
	return d
}

func adoptDevice(name string, ctx cgo.Context, cfg DeviceConfig, owner deviceOwner) (d *Device, close func() error, err error) {
	if d, err = newDevice(name, ctx, cfg, owner); err != nil {
		return nil, nil, err
	}
	return d, d.close, nil
}

func (q *QP) modifyByCall(op string, call func(cgo.QP, *cgo.QPAttr) (mask, state uint32, err error)) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	return q.life.With(op, func() error {
		if call == nil {
			return opError(op, q.life.Label, ErrAttributes, "no call")
		}
		var a cgo.QPAttr
		mask, state, err := call(q.qp, &a)
		q.state.Store(state)
		q.entered(QPState(state))
		if err != nil {
			return q.modifyError(QPState(state), QPState(a.State), a.AH.GRH.DGID, AttrMask(mask), err)
		}
		q.keyed(&a, AttrMask(mask))
		return nil
	})
}

func ownSends(q *QP, owner string) (release func(), err error) {
	q.modify.Lock()
	defer q.modify.Unlock()
	switch {
	case q.requester.Load() != nil:
		return nil, q.requested("take over sends of")
	case q.owner != "":
		return nil, opError("take over sends of", q.life.Label, ErrInUse, q.owner, " has them")
	}
	q.owner = owner
	return func() {
		q.modify.Lock()
		defer q.modify.Unlock()
		q.owner = ""
	}, nil
}

func (q *QP) onEnd(f func(cause error)) {
	d := &q.terminal
	d.mu.Lock()
	defer d.mu.Unlock()
	d.then = f
	if d.cause != nil && f != nil {
		go f(d.cause)
	}
}
