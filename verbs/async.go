package verbs

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/cgo"
)

// Kinds of asynchronous events that this package acts on (enum ibv_event_type).
const (
	eventCQErr       = 0
	eventQPFatal     = 1
	eventQPReqErr    = 2
	eventQPAccessErr = 3
	eventDeviceFatal = 8
	eventPortActive  = 9
	eventPortErr     = 10
	eventGIDChange   = 18
)

// asyncReader takes a device's asynchronous events in the netpoller and marks
// the objects that they concern.
type asyncReader struct {
	file *os.File
	done chan struct{}

	mu  sync.Mutex
	cqs map[uint64]*CQ
	qps map[uint64]*QP
}

func startAsync(d *Device) (*asyncReader, error) {
	file, err := pollable(cgo.AsyncFD(d.ctx), d.name+" events")
	if err != nil {
		return nil, err
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	r := &asyncReader{
		file: file,
		done: make(chan struct{}),
		cqs:  make(map[uint64]*CQ),
		qps:  make(map[uint64]*QP),
	}
	go func() {
		defer close(r.done)
		for {
			var ev cgo.AsyncEvent
			var ok bool
			var evErr error
			err := conn.Read(func(uintptr) bool {
				ok, evErr = cgo.TakeAsyncEvent(d.ctx, &ev)
				return ok || evErr != nil
			})
			if err != nil || evErr != nil {
				return // the device is closing, or is gone
			}
			r.dispatch(d, &ev)
			cgo.AckAsyncEvent(&ev)
		}
	}()
	return r, nil
}

// stop ends the reader before its device is closed.
func (r *asyncReader) stop() {
	r.file.Close()
	<-r.done
}

// dispatch runs before the event is acknowledged: until then the object that
// it names cannot be destroyed, so its address means what it meant.
func (r *asyncReader) dispatch(d *Device, ev *cgo.AsyncEvent) {
	text := cgo.EventTypeString(ev.Type)
	switch ev.Type {
	case eventCQErr:
		r.mu.Lock()
		cq := r.cqs[ev.Element]
		r.mu.Unlock()
		if cq != nil {
			cq.overrun.Store(true)
			cq.wake()
		}
		d.log.Error("completion queue overrun", "device", d.name)
	case eventQPFatal, eventQPReqErr, eventQPAccessErr:
		r.mu.Lock()
		qp := r.qps[ev.Element]
		r.mu.Unlock()
		if qp != nil {
			qp.fault.Store(&text)
			d.log.Warn("queue pair event", "device", d.name, "qp", qp.num, "event", text)
		}
	case eventDeviceFatal, eventPortActive, eventPortErr, eventGIDChange:
		var b [8]byte
		binary.NativeEndian.PutUint64(b[:], ev.Element)
		d.log.Info("port event", "device", d.name, "port", binary.NativeEndian.Uint32(b[:]), "event", text)
	default:
		d.log.Debug("event", "device", d.name, "event", text)
	}
}

func watchEvents[T any](r *asyncReader, m map[uint64]*T, handle uint64, obj *T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if obj == nil {
		delete(m, handle)
	} else {
		m[handle] = obj
	}
}

// faultText is the last asynchronous error event of a queue pair.
type faultText = atomic.Pointer[string]
