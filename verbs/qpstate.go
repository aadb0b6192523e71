package verbs

import (
	"fmt"
	"math/bits"
	"strings"
)

// QPState is the state of a queue pair (enum ibv_qp_state; InfiniBand
// specification, volume 1, section 10.3.1).
type QPState uint32

const (
	StateReset QPState = iota // IBV_QPS_RESET
	StateInit                 // IBV_QPS_INIT: receives may be posted
	StateRTR                  // IBV_QPS_RTR: ready to receive
	StateRTS                  // IBV_QPS_RTS: ready to send
	StateSQD                  // IBV_QPS_SQD: send queue draining
	StateSQE                  // IBV_QPS_SQE: send queue in error (UC and UD)
	StateError                // IBV_QPS_ERR: everything is flushed
)

func (s QPState) String() string {
	return enumString(s, map[QPState]string{StateReset: "RESET", StateInit: "INIT", StateRTR: "RTR",
		StateRTS: "RTS", StateSQD: "SQD", StateSQE: "SQE", StateError: "ERROR"})
}

// AttrMask names attributes of a queue pair (enum ibv_qp_attr_mask).
type AttrMask uint32

const (
	AttrState             AttrMask = 1 << iota // IBV_QP_STATE
	AttrCurState                               // IBV_QP_CUR_STATE
	AttrSQDNotify                              // IBV_QP_EN_SQD_ASYNC_NOTIFY
	AttrAccess                                 // IBV_QP_ACCESS_FLAGS
	AttrPKeyIndex                              // IBV_QP_PKEY_INDEX
	AttrPort                                   // IBV_QP_PORT
	AttrQKey                                   // IBV_QP_QKEY
	AttrAV                                     // IBV_QP_AV
	AttrPathMTU                                // IBV_QP_PATH_MTU
	AttrTimeout                                // IBV_QP_TIMEOUT
	AttrRetryCount                             // IBV_QP_RETRY_CNT
	AttrRNRRetry                               // IBV_QP_RNR_RETRY
	AttrRQPSN                                  // IBV_QP_RQ_PSN
	AttrMaxReadAtomic                          // IBV_QP_MAX_QP_RD_ATOMIC
	attrAltPath                                // IBV_QP_ALT_PATH
	AttrMinRNRTimer                            // IBV_QP_MIN_RNR_TIMER
	AttrSQPSN                                  // IBV_QP_SQ_PSN
	AttrMaxDestReadAtomic                      // IBV_QP_MAX_DEST_RD_ATOMIC
	attrPathMigState                           // IBV_QP_PATH_MIG_STATE
	attrCap                                    // IBV_QP_CAP
	AttrDestQPN                                // IBV_QP_DEST_QPN
)

// AttrRateLimit is above a gap in the kernel's enumeration.
const AttrRateLimit AttrMask = 1 << 25 // IBV_QP_RATE_LIMIT

var attrNames = [...]string{"STATE", "CUR_STATE", "SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT",
	"QKEY", "AV", "PATH_MTU", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH",
	"MIN_RNR_TIMER", "SQ_PSN", "MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN",
	25: "RATE_LIMIT"}

func (m AttrMask) String() string {
	var names []string
	for rest := uint32(m); rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros32(rest)
		if i < len(attrNames) && attrNames[i] != "" {
			names = append(names, attrNames[i])
		} else {
			names = append(names, fmt.Sprintf("bit %d", i))
		}
	}
	return strings.Join(names, "|")
}

// rule is what a transition requires and what else it accepts.
type rule struct{ required, optional AttrMask }

type transition struct{ from, to QPState }

// Shorthands of the table below.
const (
	connAV   = AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN
	connOpt  = attrAltPath | AttrAccess | attrPathMigState
	initConn = AttrPKeyIndex | AttrPort | AttrAccess
	initUD   = AttrPKeyIndex | AttrPort | AttrQKey
)

// rules is the state table of the InfiniBand specification, volume 1, section
// 11.2.5.2 (table "QP state transition properties"). Transitions to RESET and
// ERROR are legal from everywhere and take no attributes.
var rules = map[QPType]map[transition]rule{
	RC: {
		{StateReset, StateInit}: {initConn, 0},
		{StateInit, StateInit}:  {0, initConn},
		{StateInit, StateRTR}: {connAV | AttrMaxDestReadAtomic | AttrMinRNRTimer,
			attrAltPath | AttrAccess | AttrPKeyIndex},
		{StateRTR, StateRTS}: {AttrTimeout | AttrRetryCount | AttrRNRRetry | AttrSQPSN | AttrMaxReadAtomic,
			AttrCurState | connOpt | AttrMinRNRTimer | AttrRateLimit},
		{StateRTS, StateRTS}: {0, AttrCurState | connOpt | AttrMinRNRTimer | AttrRateLimit},
		{StateRTS, StateSQD}: {0, AttrSQDNotify},
		{StateSQD, StateRTS}: {0, AttrCurState | connOpt | AttrMinRNRTimer},
		{StateSQD, StateSQD}: {0, AttrPort | AttrAV | AttrTimeout | AttrRetryCount | AttrRNRRetry |
			AttrMaxReadAtomic | AttrMaxDestReadAtomic | connOpt | AttrPKeyIndex | AttrMinRNRTimer},
	},
	UC: {
		{StateReset, StateInit}: {initConn, 0},
		{StateInit, StateInit}:  {0, initConn},
		{StateInit, StateRTR}:   {connAV, attrAltPath | AttrAccess | AttrPKeyIndex},
		{StateRTR, StateRTS}:    {AttrSQPSN, AttrCurState | connOpt | AttrRateLimit},
		{StateRTS, StateRTS}:    {0, AttrCurState | connOpt | AttrRateLimit},
		{StateRTS, StateSQD}:    {0, AttrSQDNotify},
		{StateSQD, StateRTS}:    {0, AttrCurState | connOpt},
		{StateSQD, StateSQD}:    {0, AttrAV | connOpt | AttrPKeyIndex},
		{StateSQE, StateRTS}:    {0, AttrCurState | AttrAccess},
	},
	RawPacket: {
		{StateReset, StateInit}: {AttrPort, 0},
		{StateInit, StateRTR}:   {0, 0},
		{StateRTR, StateRTS}:    {0, AttrRateLimit},
		{StateRTS, StateRTS}:    {0, AttrRateLimit},
	},
	// The driver's kinds: rdma-core, providers/mlx5 and providers/efa.
	DCI: {
		{StateReset, StateInit}: {AttrPKeyIndex | AttrPort, 0},
		{StateInit, StateRTR}:   {AttrPathMTU, AttrAV},
		{StateRTR, StateRTS}:    {AttrTimeout | AttrRetryCount | AttrRNRRetry | AttrSQPSN | AttrMaxReadAtomic, 0},
	},
	DCT: {
		{StateReset, StateInit}: {initConn, 0},
		{StateInit, StateRTR}:   {AttrAV | AttrPathMTU | AttrMinRNRTimer, 0},
	},
	SRD: {
		{StateReset, StateInit}: {initUD, 0},
		{StateInit, StateRTR}:   {0, 0},
		{StateRTR, StateRTS}:    {AttrSQPSN, AttrRNRRetry},
	},
	UD: {
		{StateReset, StateInit}: {initUD, 0},
		{StateInit, StateInit}:  {0, initUD},
		{StateInit, StateRTR}:   {0, AttrPKeyIndex | AttrQKey},
		{StateRTR, StateRTS}:    {AttrSQPSN, AttrCurState | AttrQKey | AttrRateLimit},
		{StateRTS, StateRTS}:    {0, AttrCurState | AttrQKey | AttrRateLimit},
		{StateRTS, StateSQD}:    {0, AttrSQDNotify},
		{StateSQD, StateRTS}:    {0, AttrCurState | AttrQKey},
		{StateSQD, StateSQD}:    {0, AttrPKeyIndex | AttrQKey},
		{StateSQE, StateRTS}:    {0, AttrCurState | AttrQKey},
	},
}

// stateTable is a rule for each transition, by its two states.
type stateTable [StateError + 1][StateError + 1]struct {
	rule
	legal bool
}

// tables are the rules as each modification looks for them.
var tables = func() map[QPType]*stateTable {
	all := make(map[QPType]*stateTable)
	for typ, of := range rules {
		t := new(stateTable)
		for step, r := range of {
			at := &t[step.from][step.to]
			at.rule, at.legal = r, true
		}
		for from := range t {
			t[from][StateReset].legal, t[from][StateError].legal = true, true
		}
		all[typ] = t
	}
	return all
}()

// TransitionError says why a transition was refused before the
// device was asked. It matches [ErrState] or [ErrAttributes].
type TransitionError struct {
	Type       QPType
	From, To   QPState
	Legal      bool     // the transition as such
	Missing    AttrMask // required and not given
	Unexpected AttrMask // given and not allowed
}

func (e *TransitionError) Error() string {
	if !e.Legal {
		return fmt.Sprintf("no transition %v to %v for %v", e.From, e.To, e.Type)
	}
	var parts []string
	if e.Missing != 0 {
		parts = append(parts, "missing: "+e.Missing.String())
	}
	if e.Unexpected != 0 {
		parts = append(parts, "not allowed: "+e.Unexpected.String())
	}
	return fmt.Sprintf("%v to %v: %s", e.From, e.To, strings.Join(parts, "; "))
}

func (e *TransitionError) Unwrap() error {
	if !e.Legal {
		return ErrState
	}
	return ErrAttributes
}

// checkTransition returns a *TransitionError or nil.
func checkTransition(t QPType, from, to QPState, mask AttrMask) error {
	return tables[t].check(t, from, to, mask)
}

// check is checkTransition with the type's table.
func (s *stateTable) check(t QPType, from, to QPState, mask AttrMask) error {
	mask &^= AttrState
	known := min(from, StateError) // whatever else it is in, it can only leave
	if s == nil || to > StateError || !s[known][to].legal {
		return &TransitionError{Type: t, From: from, To: to}
	}
	r := &s[known][to]
	missing, unexpected := r.required&^mask, mask&^(r.required|r.optional)
	if missing == 0 && unexpected == 0 {
		return nil
	}
	return &TransitionError{Type: t, From: from, To: to, Legal: true, Missing: missing, Unexpected: unexpected}
}
