//go:build linux && cgo

package standin

/*
#include <stdlib.h>
#include "waiting.h"
*/
import "C"

import (
	"errors"
	"unsafe"

	"github.com/goverbs/goverbs/cgo"
)

// Waiting is a completion queue and its channel as one step of waiting sees them
// ([cgo.WaitStep]), beside quick producers and pollers: between any two of its calls
// completions come and go.
type Waiting struct {
	w     *C.struct_standin_waiting
	armed bool
	wcs   [8]cgo.WC

	Notify cgo.Notify // how an event is requested; the write that is for rxe is refused here
}

// NewWaiting makes an empty queue. Until Close no other queue must be waited on.
func NewWaiting() (*Waiting, error) {
	w := C.standin_waiting_new()
	if w == nil {
		return nil, errors.New("standin: out of memory")
	}
	C.standin_waiting_install(C.uintptr_t(cgo.DriverTable()))
	return &Waiting{w: w}, nil
}

func (w *Waiting) Close() {
	C.standin_waiting_remove(C.uintptr_t(cgo.DriverTable()))
	C.free(unsafe.Pointer(w.w))
}

// Moment is what others do at a time: completions come, and another one's poll takes some.
type Moment struct{ Come, Take uint8 }

// Moments are those before the calls of a step, by their order, and after the last one.
type Moments [C.WAITING_CALLS]Moment

// Step is a step with room for n completions. It returns how many it took, 0 where the
// caller is to park.
func (w *Waiting) Step(n int, others *Moments) (int, error) {
	for i, m := range others {
		w.w.come[i], w.w.take[i] = C.uint8_t(m.Come), C.uint8_t(m.Take)
	}
	w.w.calls, w.w.raised = 0, 0
	got, err := cgo.WaitStep(cgo.CompChannel(uintptr(unsafe.Pointer(&w.w.channel))), cgo.CQ(uintptr(unsafe.Pointer(&w.w.cq))), cgo.PollPlain, &w.armed, w.Notify, w.wcs[:n])
	C.standin_waiting_next(w.w)
	return got, err
}

// Between is what others do between two steps.
func (w *Waiting) Between(m Moment) { C.standin_waiting_others(w.w, C.int(m.Come), C.int(m.Take)) }

// Queued is how many completions are in the queue.
func (w *Waiting) Queued() int { return int(w.w.queued) }

// Raised reports whether an event was raised since the last step began, which ends parking.
func (w *Waiting) Raised() bool { return w.w.raised > 0 }

// Asked reports whether the next completion raises an event.
func (w *Waiting) Asked() bool { return w.w.asked != 0 }

// Events are those that were read and acknowledged, and how many were unread at a time.
func (w *Waiting) Events() (read, acked, most int) {
	return int(w.w.read), int(w.w.acked), int(w.w.most)
}
