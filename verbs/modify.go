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
	QKey              uint32
	RQPSN             uint32 // 24 bits: first packet expected
	SQPSN             uint32 // 24 bits: first packet sent
	DestQPN           uint32
	Access            Access
	AH                AHAttr
	PKeyIndex         uint16
	SQDNotify         bool
	SQDraining        bool  // set by Query: sends are still under way in [StateSQD]
	MaxReadAtomic     uint8 // READs and atomics outstanding as initiator
	MaxDestReadAtomic uint8 // the same as target
	MinRNRTimer       RNRTimer
	Port              uint8
	Timeout           AckTimeout
	RetryCount        uint8  // 0 to 7
	RNRRetry          uint8  // 0 to 7; 7 is without end
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

// modifyStep is one of several modifications.
type modifyStep = struct {
	Attr QPAttr
	Mask AttrMask
}

// resetStep returns what [QP.ToReset] does.
func resetStep() modifyStep { return modifyStep{QPAttr{State: StateReset}, AttrState} }

// initStep returns what [QP.Init] does.
func (q *QP) initStep() modifyStep {
	return modifyStep{
		QPAttr{State: StateInit, PKeyIndex: q.pkey, Port: q.gid.Port, Access: q.access, QKey: q.qkey.Load()},
		AttrState | tables[q.typ][StateReset][StateInit].required,
	}
}

// modifyBySteps is [driver.ModifySteps].
func (q *QP) modifyBySteps(steps ...modifyStep) error {
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

func (q *QP) modifySteps(steps []modifyStep, raw []cgo.QPAttr, masks []uint32) error {
	first := q.State()
	at, reset, table := first, first == StateReset, tables[q.typ]
	for i := range steps {
		to := behind(&steps[i], at)
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
		if at = behind(&steps[i], at); at == StateReset {
			cgo.ResetPostPath(q.path)
		}
	}
	q.state.Store(uint32(at))
	told := first
	for i := range steps[:n] {
		told = behind(&steps[i], told)
		q.keyed(&raw[i], steps[i].Mask)
		q.entered(told)
	}
	if err != nil {
		failed := &steps[n]
		return q.modifyError(at, behind(failed, at), failed.Attr.AH.GID, failed.Mask, err)
	}
	return nil
}

// behind returns the state behind a step.
func behind(s *modifyStep, from QPState) QPState {
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
			AttrMinRNRTimer | AttrDestQPN | attrCap
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
// Before Linux 6.4, on Soft-RoCE, it must not meet requests of the peer: make the
// peer stop before, or use [QP.Quiesce]. On EFA a queue pair that has left [StateInit] is
// refused with [ErrUnsupported]: make another one.
func (q *QP) ToReset() error {
	s := resetStep()
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
	s := q.initStep()
	return q.Modify(s.Attr, s.Mask)
}

// Activate moves a queue pair without a connection from [StateInit] to the
// state in which it works: [StateRTS], or [StateRTR] for a [DCT].
func (q *QP) Activate() error { return q.activateWith(ConnectConfig{}) }

// activateWith is Activate with the timers and limits that a [DCI] or [DCT]
// takes from cfg; UD and SRD take none.
func (q *QP) activateWith(cfg ConnectConfig) error {
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
	r.State, r.CurState, r.PathMTU = uint32(a.State), uint32(a.CurState), uint32(a.PathMTU)
	r.QKey, r.RQPSN, r.SQPSN, r.DestQPN, r.AccessFlags = a.QKey, a.RQPSN, a.SQPSN, a.DestQPN, uint32(a.Access)
	a.AH.fill(&r.AH)
	r.PKeyIndex = a.PKeyIndex
	r.MaxRdAtomic, r.MaxDestRdAtomic, r.MinRNRTimer = a.MaxReadAtomic, a.MaxDestReadAtomic, uint8(a.MinRNRTimer)
	r.PortNum, r.Timeout, r.RetryCnt, r.RNRRetry = a.Port, uint8(a.Timeout), a.RetryCount, a.RNRRetry
	r.RateLimit = a.RateLimit
	if a.SQDNotify {
		r.EnSQDAsyncNotify = 1
	}
}

func fromRaw(r *cgo.QPAttr) QPAttr {
	return QPAttr{
		State: QPState(r.State), CurState: QPState(r.CurState), PathMTU: MTU(r.PathMTU),
		QKey: r.QKey, RQPSN: r.RQPSN, SQPSN: r.SQPSN, DestQPN: r.DestQPN, Access: Access(r.AccessFlags),
		AH: ahFromRaw(&r.AH), PKeyIndex: r.PKeyIndex,
		SQDNotify: r.EnSQDAsyncNotify != 0, SQDraining: r.SQDraining != 0, MaxReadAtomic: r.MaxRdAtomic, MaxDestReadAtomic: r.MaxDestRdAtomic,
		MinRNRTimer: RNRTimer(r.MinRNRTimer), Port: r.PortNum, Timeout: AckTimeout(r.Timeout), RetryCount: r.RetryCnt,
		RNRRetry: r.RNRRetry, RateLimit: r.RateLimit,
	}
}
