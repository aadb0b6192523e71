package srd

import (
	"fmt"
	"math/rand/v2"

	"github.com/goverbs/goverbs/srd/internal/engine"
	"github.com/goverbs/goverbs/srd/internal/offload"
	"github.com/goverbs/goverbs/srd/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// hardware is the SRD queue pair of an endpoint on EFA, which delivers packets by itself,
// and its memory.
type hardware struct {
	device
	ep     *Endpoint
	m      *offload.Machine
	out    engine.Out
	retry  bool // the device can be told how often to retry when the receiver has no buffer
	qp     *verbs.QP
	send   *verbs.Batch
	recv   *verbs.RecvBatch
	broken bool

	pending []uint32 // receives to be posted again
	slots   []flight
}

// flight is a packet that is sent, or waits for its address handle.
type flight struct {
	h      *handle // nil: it waits, or the slot is free
	to     wire.Addr
	length int
}

// rnrRetries is how often the device retries when the receiver has no buffer: the machine
// waits longer, and does other things meanwhile.
const rnrRetries = 1

func newHardware(ep *Endpoint, efa verbs.EFAFeatures) error {
	h := &hardware{ep: ep, retry: efa.RNRRetry}
	ep.driver = h
	cfg := &ep.cfg
	if cfg.QKey == 0 { // tells a life from its successor with the same number
		cfg.QKey = 1 + rand.Uint32N(1<<31-1)
	}
	port, err := cfg.PD.Device().Port(ep.gid.Port)
	if err != nil {
		return err
	}
	slots := min(sendSlots, efa.MaxSendWR)
	if err := h.open(ep, h, cfg.Receives, slots, int(port.MaxMsgSize)); err != nil {
		return err
	}
	if h.qp, err = h.create(ep, verbs.QPConfig{Type: verbs.SRD, MaxSendWR: slots, MaxRecvWR: cfg.Receives}); err != nil {
		return err
	}
	if h.send, err = h.d.NewBatch(h.qp, 64); err != nil {
		return err
	}
	if h.recv, err = h.d.NewRecvBatch(h.qp, cfg.Receives); err != nil {
		return err
	}
	ep.handles.Labels, ep.handles.Parked = []uint32{0}, slots
	h.slots = make([]flight, slots)
	h.m = offload.New(offload.Config{Config: ep.sessions(h.qp.Num(), h.stride, h.idle()), Host: (*host)(ep), Slots: slots})
	ep.e = h.m
	return nil
}

// begin posts all receives of the queue pair in INIT, and brings it to RTS.
func (h *hardware) begin() error {
	for i := range h.ep.cfg.Receives {
		h.pending = append(h.pending, uint32(i))
	}
	if err := h.repost(); err != nil {
		return err
	}
	if err := h.qp.Modify(verbs.QPAttr{State: verbs.StateRTR}, verbs.AttrState); err != nil {
		return err
	}
	rts, mask := verbs.QPAttr{State: verbs.StateRTS, RNRRetry: rnrRetries}, verbs.AttrState|verbs.AttrSQPSN
	if h.retry {
		mask |= verbs.AttrRNRRetry
	}
	return h.qp.Modify(rts, mask)
}

func (h *hardware) repost() error {
	if len(h.pending) == 0 {
		return nil
	}
	for _, i := range h.pending {
		h.recv.Recv(h.d.ID(recvBit|uint64(i)), h.mr.SGE(int(i)*h.stride, h.stride))
	}
	h.pending = h.pending[:0]
	_, err := h.recv.Post()
	return err
}

// Completed implements [verbs.Engine]: it hands packets and their outcomes to the machine.
func (h *hardware) Completed(tag uint64, wc *verbs.WC) {
	ep := h.ep
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.closed.Load() || h.broken {
		return
	}
	ep.polls.beginCompletion()
	defer func() { ep.polls.completing = false }()
	if s := wc.Status(); s == verbs.WCFlushed || s == verbs.WCLocalQPOperation {
		h.fails(wc.Err())
		return
	}
	ep.polls.clock = ep.now()
	h.m.Advance(ep.polls.clock)
	i := uint32(tag)
	if tag&recvBit == 0 {
		h.release(i, outcome(wc.Status()))
		if h.m.Wait() == 0 {
			ep.polls.came()
		}
		return
	}
	if n := wc.Len(); wc.Status() == verbs.WCSuccess && n <= h.stride {
		h.m.Receive(wc.SrcQP(), h.memory(int(i), n))
		ep.toldOfKeys(engine.Source{QPN: wc.SrcQP()}) // all that a device says of the source
	} else { // more than a buffer holds
		h.m.Stats.Malformed++
	}
	h.pending = append(h.pending, i)
	ep.polls.came()
}

// outcome returns the outcome of a packet that EFA reports, as libefa translates it.
func outcome(s verbs.WCStatus) offload.Outcome {
	switch s {
	case verbs.WCSuccess:
		return offload.Landed
	case verbs.WCRNRRetryExceeded: // EFA_IO_COMP_STATUS_REMOTE_ERROR_RNR
		return offload.NotReady
	case verbs.WCRemoteInvalidRD: // EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_DEST_QPN
		return offload.Gone
	case verbs.WCResponseTimeout, verbs.WCRetryExceeded: // EFA_IO_COMP_STATUS_LOCAL_ERROR_UNRESP_REMOTE
		return offload.Silent
	}
	return offload.Failed
}

// Lost implements [verbs.Engine].
func (h *hardware) Lost(err error) { h.ep.fail(err) }

// release frees a slot, and tells the machine the outcome of its packet.
func (h *hardware) release(i uint32, o offload.Outcome) {
	s := &h.slots[i]
	if s.h != nil {
		s.h.Uses--
	}
	*s = flight{}
	h.free = append(h.free, i)
	h.m.Completed(int(i), o)
}

func (h *hardware) flush() {
	if !h.broken && h.urgent() { // first: credit lets the peer fill them
		if err := h.repost(); err != nil {
			h.fails(err)
		}
	}
	if h.broken {
		return
	}
	for len(h.free) > 0 {
		i := h.free[len(h.free)-1]
		b := h.mr.Bytes()[h.sendAt(i):][:h.stride]
		o := &h.out
		if !h.m.Next(int(i), b, o) {
			break
		}
		h.free = h.free[:len(h.free)-1]
		if o.Length > 0 {
			gather(b[o.Headers:][:o.Length], h.ep.requests.all[uint32(o.Tag)].data, o.Offset)
		}
		if o.Seal {
			h.m.Seal(&o.To, b[:o.Headers], nil)
		}
		h.slots[i] = flight{to: o.To, length: o.Headers + o.Length}
		h.launch(i)
	}
	h.post()
}

func (h *hardware) urgent() bool {
	return len(h.pending) >= h.idle()
}

// idle returns how many receives are collected before they are posted again.
func (h *hardware) idle() int { return min(postRecvsEach, h.ep.cfg.Receives/4) }

// launch adds a packet to the chain, or has it wait for an address handle.
func (h *hardware) launch(i uint32) {
	s := &h.slots[i]
	to, _ := h.wayOf(i)
	if s.h, _ = h.ep.handles.Take(i, to, false); s.h == nil { // all may wait
		return
	}
	if h.send.Len() == h.send.Cap() {
		h.post()
	}
	h.send.SetTarget(verbs.Target{AH: s.h.AH, QPN: s.to.QPN, QKey: s.to.QKey})
	h.send.Send(h.d.ID(uint64(i)), verbs.Signaled, h.mr.SGE(h.sendAt(i), s.length))
}

func (h *hardware) wayOf(i uint32) (to way, unauthenticated bool) {
	return h.ep.handles.Way(h.slots[i].to.GID, 0), false // EFA asks no network where that is
}

func (h *hardware) resume() {
	for _, i := range h.ep.handles.Resume() {
		h.launch(i)
	}
}

// lost gives up what waits for an address handle that cannot be made.
func (h *hardware) lost(to way) {
	for _, i := range h.ep.handles.Lost(to, h.wayOf) {
		h.release(i, offload.Gone)
	}
}

func (h *hardware) post() {
	if h.send.Len() == 0 || h.broken {
		return
	}
	if _, err := h.send.Post(); err != nil {
		h.fails(err)
	}
}

// fails ends the endpoint: an SRD queue pair fails for none of its packets, but when the
// device itself is broken. Resetting the queue pair would not help: libefa counts
// what completed before again after that, outside of its memory.
func (h *hardware) fails(err error) {
	if !h.broken {
		h.broken = true
		h.m.Stats.Broken++
		if h.ep.failure == nil {
			h.ep.failure = fmt.Errorf("the queue pair failed: %w", err)
		}
		h.ep.wakeAll()
	}
}

// mend has nothing to do: what fails ends the endpoint.
func (h *hardware) mend() bool { return true }

func (h *hardware) close() error { return h.device.close(h.ep) }
