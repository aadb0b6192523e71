package verbs

import (
	"fmt"
	"syscall"

	"github.com/goverbs/goverbs/cgo"
)

// QPAttr are the attributes of a queue pair. A mask says which of them a call means.
type QPAttr struct {
	State             QPState
	CurState          QPState
	PathMTU           MTU
	PathMigState      uint32
	QKey              uint32
	RQPSN             uint32 // 24 bits: first packet expected
	SQPSN             uint32 // 24 bits: first packet sent
	DestQPN           uint32
	Access            Access
	AH                AHAttr
	AltAH             AHAttr
	PKeyIndex         uint16
	AltPKeyIndex      uint16
	SQDNotify         bool
	SQDraining        bool  // set by Query: sends are still under way in [StateSQD]
	MaxReadAtomic     uint8 // READs and atomics outstanding as initiator
	MaxDestReadAtomic uint8 // the same as target
	MinRNRTimer       RNRTimer
	Port              uint8
	Timeout           AckTimeout
	RetryCount        uint8 // 0 to 7
	RNRRetry          uint8 // 0 to 7; 7 is without end
	AltPort           uint8
	AltTimeout        AckTimeout
	RateLimit         uint32 // kbit/s
}

// State is the state that this program last put the queue pair into. The
// device may have moved it to [StateError] since: see [QP.Query].
func (q *QP) State() QPState { return QPState(q.state.Load()) }

// Modify changes attributes, and the state if mask has [AttrState]. A change that the
// state table of the InfiniBand specification forbids is refused with a
// [*TransitionError] before the device is asked.
func (q *QP) Modify(a QPAttr, mask AttrMask) error {
	raw := a.raw()
	return q.modifyRaw(&raw, mask)
}

func (q *QP) modifyRaw(a *cgo.QPAttr, mask AttrMask) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	return q.modifyLocked(a, mask)
}

func (q *QP) modifyLocked(a *cgo.QPAttr, mask AttrMask) error {
	return q.life.With("modify", func() error {
		from := q.State()
		to := from
		if mask&AttrState != 0 {
			to = QPState(a.State)
		}
		if err := checkTransition(q.typ, from, to, mask); err != nil {
			// The device may have gone to SQE or ERROR by itself.
			actual, qerr := q.queryState()
			if qerr != nil || actual == from {
				return opError("modify", q.life.Label, err)
			}
			q.state.Store(uint32(actual))
			if err := checkTransition(q.typ, actual, to, mask); err != nil {
				return opError("modify", q.life.Label, err)
			}
		}
		if mask&AttrState != 0 && to == StateReset {
			if err := q.forgets(q.State()); err != nil {
				return err
			}
			held := q.holdPosts()
			defer held.release()
		}
		if err := cgo.ModifyQP(q.qp, a, uint32(mask)); err != nil {
			return q.modifyError(from, to, a.AH.GRH.DGID, mask, err)
		}
		q.keyed(a, mask)
		if mask&AttrState != 0 {
			if to == StateReset {
				cgo.ResetPostPath(q.path)
			}
			q.state.Store(uint32(to))
			q.entered(to)
		}
		return nil
	})
}

// ModifyStep is one of several modifications.
type ModifyStep struct {
	Attr QPAttr
	Mask AttrMask
}

// ResetStep is what [QP.ToReset] does.
func ResetStep() ModifyStep { return ModifyStep{QPAttr{State: StateReset}, AttrState} }

// InitStep is what [QP.Init] does.
func (q *QP) InitStep() ModifyStep {
	return ModifyStep{
		QPAttr{State: StateInit, PKeyIndex: q.pkey, Port: q.gid.Port, Access: q.access, QKey: q.qkey.Load()},
		AttrState | tables[q.typ][StateReset][StateInit].required,
	}
}

// ModifySteps is [QP.Modify] for each step in turn, in one crossing into C. It stops at
// the first one that fails; [QP.State] shows how far it came. All steps are checked
// before the first one is carried out.
func (q *QP) ModifySteps(steps ...ModifyStep) error {
	if len(steps) == 0 {
		return q.life.Open("modify")
	}
	const few = 4 // all the way from RESET to RTS
	var rawFew [few]cgo.QPAttr
	var masksFew [few]uint32
	raw, masks := rawFew[:0], masksFew[:0]
	if len(steps) > few {
		raw, masks = make([]cgo.QPAttr, len(steps)), make([]uint32, len(steps))
	}
	raw, masks = raw[:len(steps)], masks[:len(steps)]
	for i := range steps {
		steps[i].Attr.fill(&raw[i])
		masks[i] = uint32(steps[i].Mask)
	}
	q.modify.Lock()
	defer q.modify.Unlock()
	if !q.life.Enter() {
		return q.life.Open("modify")
	}
	defer q.life.Exit()
	return q.modifySteps(steps, raw, masks)
}

func (q *QP) modifySteps(steps []ModifyStep, raw []cgo.QPAttr, masks []uint32) error {
	first := q.State()
	at, reset, table := first, first == StateReset, tables[q.typ]
	for i := range steps {
		to := steps[i].to(at)
		if err := table.check(q.typ, at, to, steps[i].Mask); err != nil {
			return opError("modify", q.life.Label, err)
		}
		if to == StateReset && steps[i].Mask&AttrState != 0 {
			if err := q.forgets(at); err != nil {
				return err
			}
		}
		at, reset = to, reset || to == StateReset
	}
	if reset {
		held := q.holdPosts()
		defer held.release()
	}
	n, err := cgo.ModifySteps(q.qp, raw, masks)
	at = first
	for i := range steps[:n] {
		if at = steps[i].to(at); at == StateReset {
			cgo.ResetPostPath(q.path)
		}
	}
	q.state.Store(uint32(at))
	told := first
	for i := range steps[:n] {
		told = steps[i].to(told)
		q.keyed(&raw[i], steps[i].Mask)
		q.entered(told)
	}
	if err != nil {
		failed := &steps[n]
		return q.modifyError(at, failed.to(at), failed.Attr.AH.GID, failed.Mask, err)
	}
	return nil
}

// to is the state behind a step.
func (s *ModifyStep) to(from QPState) QPState {
	if s.Mask&AttrState != 0 {
		return s.Attr.State
	}
	return from
}

// keyed follows a queue key that was set.
func (q *QP) keyed(a *cgo.QPAttr, mask AttrMask) {
	if mask&AttrQKey != 0 {
		q.qkey.Store(a.QKey)
	}
}

// modifyError adds what usually is behind the errno.
func (q *QP) modifyError(from, to QPState, peer GID, mask AttrMask, err error) error {
	detail := fmt.Sprintf("%v to %v with %v", from, to, mask&^AttrState)
	switch {
	case mask&AttrAV != 0:
		detail += fmt.Sprintf("; from GID %v to GID %v: is there a route, does the peer answer ARP or ND, does the GID index still exist?", q.gid, peer)
	case isErrno(err, syscall.EPERM):
		detail += "; some transitions need CAP_NET_RAW"
	}
	if isErrno(err, syscall.EINVAL) {
		err = class(ErrAttributes, err)
	}
	return opError("modify", q.life.Label, err, detail)
}

func (q *QP) queryState() (QPState, error) {
	var raw cgo.QPAttr
	err := cgo.QueryQP(q.qp, &raw, uint32(AttrState))
	return QPState(raw.State), err
}

// Query reads attributes back from the device.
func (q *QP) Query() (QPAttr, error) {
	var raw cgo.QPAttr
	err := q.life.With("query", func() error {
		all := AttrState | AttrPKeyIndex | AttrPort | AttrAccess | AttrQKey | AttrAV | AttrPathMTU | AttrTimeout |
			AttrRetryCount | AttrRNRRetry | AttrRQPSN | AttrSQPSN | AttrMaxReadAtomic | AttrMaxDestReadAtomic |
			AttrMinRNRTimer | AttrDestQPN | AttrCap
		return opError("query", q.life.Label, cgo.QueryQP(q.qp, &raw, uint32(all)))
	})
	return fromRaw(&raw), err
}

// ToError moves the queue pair to [StateError]: outstanding work requests
// complete as [WCFlushed].
func (q *QP) ToError() error { return q.Modify(QPAttr{State: StateError}, AttrState) }

// ToReset moves the queue pair to [StateReset], from any state. Work requests in it are
// dropped without a completion.
//
// On a device with [Device.ResetRaces] it must not meet requests of the peer: make the
// peer stop before, or use [QP.Quiesce]. On EFA a queue pair that has left [StateInit] is
// refused with [ErrUnsupported]: make another one.
func (q *QP) ToReset() error {
	s := ResetStep()
	return q.Modify(s.Attr, s.Mask)
}

// forgets refuses a reset with which libefa would forget what is under way: completions
// that are still in the queue then give back places that were not taken, and each writes
// in front of the list of free ones (providers/efa/verbs.c: efa_qp_init_indices, efa_wq_put_wrid_idx_unlocked).
func (q *QP) forgets(from QPState) error {
	const amazon = 0x1d0f
	if from == StateReset || from == StateInit || q.pd == nil || q.pd.dev.attr.VendorID != amazon {
		return nil
	}
	return opError("reset", q.life.Label, ErrUnsupported, "libefa loses count of its requests in ", from)
}

// Init moves a queue pair from [StateReset] to [StateInit] with the port,
// partition and access that it was made with.
func (q *QP) Init() error {
	s := q.InitStep()
	return q.Modify(s.Attr, s.Mask)
}

// Activate moves a queue pair without a connection from [StateInit] to the
// state in which it works: [StateRTS], or [StateRTR] for a [DCT].
func (q *QP) Activate() error { return q.ActivateWith(ConnectConfig{}) }

// ActivateWith is Activate with the timers and limits that a [DCI] or [DCT]
// takes from cfg; UD and SRD take none.
func (q *QP) ActivateWith(cfg ConnectConfig) error {
	if err := q.life.Open("activate"); err != nil {
		return err
	}
	if q.typ == RC || q.typ == UC {
		return opError("activate", q.life.Label, ErrAttributes, q.typ, " needs a peer: use Connect")
	}
	if q.typ == DCI || q.typ == DCT {
		c, err := cfg.withDefaults(q, MTU4096)
		if err != nil {
			return err
		}
		cfg = c
	}
	rtr := QPAttr{State: StateRTR, PathMTU: cfg.MTU, MinRNRTimer: RNRTimerFor(cfg.RNRTimer),
		AH: AHAttr{Global: q.gid.Type != GIDInfiniBand, SGIDIndex: q.gid.Index, Port: q.gid.Port, HopLimit: cfg.HopLimit, TrafficClass: cfg.TrafficClass, SL: cfg.ServiceLevel}}
	if err := q.Modify(rtr, AttrState|tables[q.typ][StateInit][StateRTR].required); err != nil {
		return err
	}
	if q.typ == DCT {
		q.num = cgo.QPNum(q.qp)
		return nil
	}
	rts := QPAttr{State: StateRTS, SQPSN: q.psn, Timeout: AckTimeoutFor(cfg.AckTimeout), RetryCount: uint8(max(cfg.Retries, 0)),
		RNRRetry: uint8(max(cfg.RNRRetries, 0)), MaxReadAtomic: uint8(cfg.MaxReads)}
	return q.Modify(rts, AttrState|tables[q.typ][StateRTR][StateRTS].required)
}

func (a *QPAttr) raw() (r cgo.QPAttr) {
	a.fill(&r)
	return r
}

// fill is raw into attributes that are zero.
func (a *QPAttr) fill(r *cgo.QPAttr) {
	r.State, r.CurState, r.PathMTU, r.PathMigState = uint32(a.State), uint32(a.CurState), uint32(a.PathMTU), a.PathMigState
	r.QKey, r.RQPSN, r.SQPSN, r.DestQPN, r.AccessFlags = a.QKey, a.RQPSN, a.SQPSN, a.DestQPN, uint32(a.Access)
	a.AH.fill(&r.AH)
	a.AltAH.fill(&r.AltAH)
	r.PKeyIndex, r.AltPKeyIndex = a.PKeyIndex, a.AltPKeyIndex
	r.MaxRdAtomic, r.MaxDestRdAtomic, r.MinRNRTimer = a.MaxReadAtomic, a.MaxDestReadAtomic, uint8(a.MinRNRTimer)
	r.PortNum, r.Timeout, r.RetryCnt, r.RNRRetry = a.Port, uint8(a.Timeout), a.RetryCount, a.RNRRetry
	r.AltPortNum, r.AltTimeout, r.RateLimit = a.AltPort, uint8(a.AltTimeout), a.RateLimit
	if a.SQDNotify {
		r.EnSQDAsyncNotify = 1
	}
}

func fromRaw(r *cgo.QPAttr) QPAttr {
	return QPAttr{
		State: QPState(r.State), CurState: QPState(r.CurState), PathMTU: MTU(r.PathMTU), PathMigState: r.PathMigState,
		QKey: r.QKey, RQPSN: r.RQPSN, SQPSN: r.SQPSN, DestQPN: r.DestQPN, Access: Access(r.AccessFlags),
		AH: ahFromRaw(&r.AH), AltAH: ahFromRaw(&r.AltAH), PKeyIndex: r.PKeyIndex, AltPKeyIndex: r.AltPKeyIndex,
		SQDNotify: r.EnSQDAsyncNotify != 0, SQDraining: r.SQDraining != 0, MaxReadAtomic: r.MaxRdAtomic, MaxDestReadAtomic: r.MaxDestRdAtomic,
		MinRNRTimer: RNRTimer(r.MinRNRTimer), Port: r.PortNum, Timeout: AckTimeout(r.Timeout), RetryCount: r.RetryCnt,
		RNRRetry: r.RNRRetry, AltPort: r.AltPortNum, AltTimeout: AckTimeout(r.AltTimeout), RateLimit: r.RateLimit,
	}
}
