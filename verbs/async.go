package verbs

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/internal/pollfd"
)

// asyncReader takes a device's asynchronous events in the netpoller, marks the
// objects that they concern and passes them on to [Device.Events].
type asyncReader struct {
	file *os.File
	done chan struct{}

	mu          sync.Mutex
	cqs         map[uint64]*CQ
	qps         map[uint64]*QP
	srqs        map[uint64]*SRQ
	subscribers map[*subscriber]struct{}
	ended       bool
}

func newAsyncReader() *asyncReader {
	return &asyncReader{
		done:        make(chan struct{}),
		cqs:         make(map[uint64]*CQ),
		qps:         make(map[uint64]*QP),
		srqs:        make(map[uint64]*SRQ),
		subscribers: make(map[*subscriber]struct{}),
	}
}

func startAsync(d *Device) (*asyncReader, error) {
	file, err := pollfd.Open(cgo.AsyncFD(d.ctx), d.name+" events")
	if err != nil {
		return nil, err
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	r := newAsyncReader()
	r.file = file
	go func() {
		defer close(r.done)
		defer r.end()
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
func (r *asyncReader) dispatch(d *Device, raw *cgo.AsyncEvent) {
	ev := Event{Type: EventType(raw.Type), Device: d}
	r.mu.Lock()
	switch ev.Type {
	case EventCQError:
		ev.CQ = r.cqs[raw.Element]
	case EventSRQError, EventSRQLimit:
		ev.SRQ = r.srqs[raw.Element]
	case EventQPFatal, EventQPRequest, EventQPAccess, EventEstablished, EventSQDrained, eventMigrated, eventMigrationFailed, EventLastWQE:
		ev.QP = r.qps[raw.Element]
	default:
		var b [8]byte
		binary.NativeEndian.PutUint64(b[:], raw.Element)
		ev.Port = uint8(binary.NativeEndian.Uint32(b[:]))
	}
	r.mu.Unlock()

	switch ev.Type {
	case EventCQError:
		if ev.CQ != nil {
			ev.CQ.overrun.Store(true)
			ev.CQ.wake()
		}
		d.log.Error("completion queue overrun", "device", d.name)
	case EventQPFatal, EventQPRequest, EventQPAccess:
		if ev.QP != nil {
			text := ev.Type.String()
			var detail []any
			if ev.Type == EventQPRequest {
				detail = append(detail, likely[WCLocalQPOperation])
			}
			ev.QP.terminate(opError("use", ev.QP.named(), errors.New(text), detail...))
			d.log.Warn("queue pair event", "device", d.name, "qp", ev.QP.num, "event", text)
		}
	case EventDeviceFatal:
		r.diedAll(errDeviceFailed)
		fallthrough
	case EventPortActive, EventPortError, EventGIDChange:
		d.log.Info("port event", "device", d.name, "port", ev.Port, "event", ev.Type.String())
	default:
		d.log.Debug("event", "device", d.name, "event", ev.Type.String())
	}
	if d.owner.Event != nil {
		d.owner.Event(ev)
	}
	r.publish(ev)
}

// watchEvents makes the events of a new object find it.
func watchEvents[T any](r *asyncReader, m map[uint64]*T, handle uint64, obj *T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m[handle] = obj
}

// unwatching destroys an object that was watched. Its entry goes first: once
// the object is destroyed its handle may be a new one's, which watches already.
func unwatching[T any](r *asyncReader, m map[uint64]*T, handle uint64, destroy func() error) error {
	r.mu.Lock()
	obj := m[handle]
	delete(m, handle)
	r.mu.Unlock()
	err := destroy()
	if err != nil && obj != nil {
		watchEvents(r, m, handle, obj)
	}
	return err
}
