//go:build linux && cgo

package standin

/*
#cgo noescape standin_read
#cgo nocallback standin_read
#include "requests.h"
*/
import "C"

import (
	"errors"
	"time"

	"github.com/goverbs/goverbs/cgo"
)

// Requester has loops in C on a connected queue pair. Its completions come to CQ, which
// nothing else polls meanwhile.
type Requester struct {
	QP     cgo.QP
	CQ     cgo.CQ
	Local  cgo.SGE // memory for results, and for data
	Remote uint64
	RKey   uint32
}

func (r *Requester) c() C.struct_standin_requester {
	return C.struct_standin_requester{qp: C.uintptr_t(r.QP), cq: C.uintptr_t(r.CQ), addr: C.uint64_t(r.Local.Addr),
		raddr: C.uint64_t(r.Remote), lkey: C.uint32_t(r.Local.LKey), rkey: C.uint32_t(r.RKey)}
}

// Reads posts lists of at most 64 READs of size bytes, one list after the other, of which
// the last READ is signaled, and returns how long all took. In each list there are extra turns of an
// empty loop.
func (r *Requester) Reads(size, list, extra, lists int) (time.Duration, error) {
	c := r.c()
	return took(C.standin_reads(&c, C.uint32_t(size), C.int(list), C.int(extra), C.int(lists)))
}

// Read returns a READ of size bytes by one crossing into C and nothing else.
func (r *Requester) Read(size int) func() error {
	c := r.c()
	return func() error {
		if C.standin_read(&c, C.uint32_t(size)) != 0 {
			return errLoop
		}
		return nil
	}
}

// Updates acquires the lock in the first eight bytes and READs the size bytes behind it, by one
// list; then it WRITEs them and releases the lock by another one. It does that n times and returns
// how long all took.
func (r *Requester) Updates(size, n int) (time.Duration, error) {
	c := r.c()
	return took(C.standin_updates(&c, C.uint32_t(size), C.int(n)))
}

// DCT is a target at a GID, which the port reaches from its own GID of that index.
type DCT struct {
	Number uint32
	Key    uint64
	GID    [16]byte
	Index  uint8
}

// ReadsOf is Reads, one by one, of a requester that is a DCI without streams.
func (r *Requester) ReadsOf(to DCT, size, n int) (time.Duration, error) {
	c, d := r.c(), C.struct_standin_dct{key: C.uint64_t(to.Key), number: C.uint32_t(to.Number), index: C.uint8_t(to.Index)}
	for i, b := range to.GID {
		d.gid[i] = C.uint8_t(b)
	}
	return took(C.standin_dct_reads(&c, &d, C.uint32_t(size), C.int(n)))
}

// Datagrams is a UD queue pair, with sends and receives that complete in CQ, and its memory.
type Datagrams struct {
	QP    cgo.QP
	CQ    cgo.CQ
	Local cgo.SGE
	QKey  uint32
	GID   [16]byte
	Index uint8 // of the GID
}

func (d *Datagrams) c() C.struct_standin_datagrams {
	c := C.struct_standin_datagrams{qp: C.uintptr_t(d.QP), cq: C.uintptr_t(d.CQ), addr: C.uint64_t(d.Local.Addr),
		lkey: C.uint32_t(d.Local.LKey), qkey: C.uint32_t(d.QKey), index: C.uint8_t(d.Index)}
	for i, b := range d.GID {
		c.gid[i] = C.uint8_t(b)
	}
	return c
}

// PingPong sends a message of size bytes from d to another queue pair and one back, n times, and
// returns how long all took.
func (d *Datagrams) PingPong(to *Datagrams, size, n int) (time.Duration, error) {
	a, b := d.c(), to.c()
	return took(C.standin_pingpong(&a, &b, C.uint32_t(size), C.int(n)))
}

// WaitedPingPong is PingPong between the calling thread and another one, which wait for events of their queues. Both
// queues must have channels, of which no other thread reads events.
func (d *Datagrams) WaitedPingPong(to *Datagrams, size, n int) (time.Duration, error) {
	a, b := d.c(), to.c()
	return took(C.standin_waited_pingpong(&a, &b, C.uint32_t(size), C.int(n)))
}

var errLoop = errors.New("standin: C loop: post, poll or completion failed")

func took(ns C.int64_t) (time.Duration, error) {
	if ns < 0 {
		return 0, errLoop
	}
	return time.Duration(ns), nil
}
