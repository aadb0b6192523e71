package verbs

import (
	"sync"

	"github.com/goverbs/goverbs/cgo"
)

// librdmacm has one context for each device, in which it makes what belongs to
// an id. So there is one Device for each such context in the process, shared
// by all CMs. It does not close the context; it keeps librdmacm from doing so.
var cmDevices struct {
	mu     sync.Mutex
	shared map[cgo.Context]*cmDevice
}

type cmDevice struct {
	dev    *Device
	shares int
	list   cgo.CMDevices // keeps the context open, and those of the other devices
}

// Device is the device of that name as the connection manager knows it, for
// programs that set up memory before their first connection. It lives as long
// as the CM: closing it is refused with [ErrInUse]. Only a device that was
// unplugged ([ErrDeviceRemoved]) can be closed, and should be, after everything
// on it: until then the kernel holds up whoever unplugs it.
func (m *CM) Device(name string) (*Device, error) {
	if !m.life.Enter() {
		return nil, opError("open", name, ErrClosed)
	}
	defer m.life.Exit()
	list, all, err := cgo.CMGetDevices()
	if err != nil {
		return nil, openError(name, err)
	}
	defer cgo.CMFreeDevices(list)
	detail := "there are:"
	for _, ctx := range all {
		if n := cgo.ContextName(ctx); n != name {
			detail += " " + n
			continue
		}
		return m.deviceOf(ctx)
	}
	return nil, opError("open", name, ErrNoDevice, detail)
}

// deviceOf is the shared device of a context, which the caller keeps in use.
func (m *CM) deviceOf(ctx cgo.Context) (*Device, error) {
	cmDevices.mu.Lock()
	defer cmDevices.mu.Unlock()
	s := cmDevices.shared[ctx]
	if s == nil {
		s = &cmDevice{}
		var err error
		if s.list, _, err = cgo.CMGetDevices(); err != nil {
			return nil, openError(cgo.ContextName(ctx), err)
		}
		s.dev, err = newDevice(cgo.ContextName(ctx), ctx, DeviceConfig{Logger: m.log}, func() error {
			if s.list != 0 {
				cgo.CMFreeDevices(s.list)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if cmDevices.shared == nil {
			cmDevices.shared = make(map[cgo.Context]*cmDevice)
		}
		cmDevices.shared[ctx] = s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.devs[s.dev] {
		if err := s.dev.life.Adopt("cm"); err != nil {
			return nil, err
		}
		m.devs[s.dev] = true
		s.shares++
	}
	return s.dev, nil
}

// releaseCMDevice gives back one share, and the device with the last. Then it
// is refused while there is anything on the device.
func releaseCMDevice(d *Device) error {
	cmDevices.mu.Lock()
	defer cmDevices.mu.Unlock()
	s := cmDevices.shared[d.ctx]
	if s == nil || s.dev != d {
		return nil // removed
	}
	if s.shares > 1 {
		s.shares--
		d.life.Release("cm")
		return nil
	}
	return s.close()
}

// close takes back all shares and closes the device. The caller holds the lock.
func (s *cmDevice) close() error {
	d := s.dev
	for range s.shares {
		d.life.Release("cm")
	}
	forgets := d.removed.Load() && forgetsRemoved()
	if d.removed.Load() && !forgets {
		d.log.Error("librdmacm has lost its devices with the removed one: this process must start again to use them", "removed", d.name)
		s.list = 0
	}
	if err := d.close(); err != nil {
		for range s.shares {
			if again := d.life.Adopt("cm"); again != nil {
				return again
			}
		}
		return err
	}
	delete(cmDevices.shared, d.ctx)
	if !forgets {
		return nil
	}
	for _, other := range cmDevices.shared { // their lists have the removed device too
		if list, _, err := cgo.CMGetDevices(); err == nil {
			cgo.CMFreeDevices(other.list)
			other.list = list
		}
	}
	return nil
}

// forgetsRemoved makes librdmacm look which devices there are, after which it
// closes its contexts of removed ones, for which the kernel waits, once no list
// has them.
//
// Some versions before 52 (44.0 to 44.5 among them) compare the
// addresses of their devices wrongly and can forget all of them there; their
// next call then waits for itself. With a list that is never freed they stay in
// a state in which calls fail instead; the answer false says so.
func forgetsRemoved() bool {
	list, known, err := cgo.CMGetDevices()
	if err == nil {
		cgo.CMFreeDevices(list)
	}
	there, _ := cgo.Devices()
	return len(known) >= len(there)
}

// deviceRemoved notes that the device of an id has been unplugged.
func deviceRemoved(ctx cgo.Context) {
	cmDevices.mu.Lock()
	defer cmDevices.mu.Unlock()
	if s := cmDevices.shared[ctx]; s != nil {
		s.dev.removed.Store(true)
	}
}

// closeRemoved closes a removed device, of which the connection managers keep
// nothing: the kernel waits for it.
func closeRemoved(d *Device) error {
	cmDevices.mu.Lock()
	defer cmDevices.mu.Unlock()
	if s := cmDevices.shared[d.ctx]; s != nil && s.dev == d {
		return s.close()
	}
	return nil
}
