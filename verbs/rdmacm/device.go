package rdmacm

import (
	"errors"
	"log/slog"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/internal/operr"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// librdmacm has one context for each device, in which it makes what belongs to
// an id. So there is one Device for each such context in the process, shared
// by all CMs. It does not close the context; it keeps librdmacm from doing so.
var devices struct {
	mu     sync.Mutex
	shared map[cgo.Context]*device
}

// device is such a Device. All but dev and gids is under devices.mu.
type device struct {
	dev     *verbs.Device
	log     *slog.Logger
	gids    gidCache
	destroy func() error
	ctx     cgo.Context
	shares  int           // CMs that have it
	list    cgo.CMDevices // keeps the context open, and those of the other devices
	removed bool          // unplugged
	gone    bool          // closed
}

// Device is the device of that name as the connection manager knows it, for programs that
// set up memory before their first connection. It lives as long as the CM: closing it is
// refused with [verbs.ErrInUse]. Only a device that was unplugged ([ErrDeviceRemoved])
// can be closed, and should be, after everything on it: until then the kernel blocks
// its removal.
func (m *CM) Device(name string) (*verbs.Device, error) {
	if !m.life.Enter() {
		return nil, operr.New("open", name, verbs.ErrClosed)
	}
	defer m.life.Exit()
	list, all, err := cgo.CMGetDevices()
	if err != nil {
		return nil, noDevices(name, err)
	}
	defer cgo.CMFreeDevices(list)
	detail := "there are:"
	for _, ctx := range all {
		if n := cgo.ContextName(ctx); n != name {
			detail += " " + n
			continue
		}
		d, err := m.deviceOf(ctx)
		if err != nil {
			return nil, err
		}
		return d.dev, nil
	}
	return nil, operr.New("open", name, verbs.ErrNoDevice, detail)
}

// noDevices returns why librdmacm lists no devices.
func noDevices(name string, err error) error {
	if errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENOSYS) {
		err = operr.Class(verbs.ErrNoDevice, err)
	}
	return operr.New("open", name, err)
}

// deviceOf is the shared device of a context, which the caller keeps in use.
func (m *CM) deviceOf(ctx cgo.Context) (*device, error) {
	devices.mu.Lock()
	defer devices.mu.Unlock()
	d := devices.shared[ctx]
	if d == nil {
		var err error
		if d, err = m.adopt(ctx); err != nil {
			return nil, err
		}
		if devices.shared == nil {
			devices.shared = make(map[cgo.Context]*device)
		}
		devices.shared[ctx] = d
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.devs[d] {
		m.devs[d] = true
		d.shares++
	}
	return d, nil
}

// adopt makes the Device of a context.
func (m *CM) adopt(ctx cgo.Context) (*device, error) {
	name := cgo.ContextName(ctx)
	list, _, err := cgo.CMGetDevices()
	if err != nil {
		return nil, noDevices(name, err)
	}
	d := &device{ctx: ctx, list: list, log: m.log}
	d.dev, d.destroy, err = driver.AdoptDevice(name, ctx, verbs.DeviceConfig{Logger: m.log}, driver.DeviceOwner{
		Close: d.closeIfUnused,
		Release: func() error {
			if d.list != 0 {
				cgo.CMFreeDevices(d.list)
			}
			return nil
		},
		Event: d.gids.follow,
	})
	return d, err
}

// closeIfUnused is Close of the Device, which belongs to the connection managers
// until it is unplugged.
func (d *device) closeIfUnused() error {
	devices.mu.Lock()
	defer devices.mu.Unlock()
	if d.shares > 0 && !d.removed {
		return operr.New("close", d.dev.Name(), verbs.ErrInUse, "a connection manager has it")
	}
	return d.close()
}

// closeIfRemoved closes an unplugged device if nothing is on it any more.
func (d *device) closeIfRemoved() {
	devices.mu.Lock()
	defer devices.mu.Unlock()
	if d.removed {
		d.close()
	}
}

// release gives back one share, and the device with the last. Then it is refused
// while there is anything on the device.
func (d *device) release() error {
	devices.mu.Lock()
	defer devices.mu.Unlock()
	if d.shares > 1 {
		d.shares--
		return nil
	}
	return d.close()
}

// close closes the device, even if there are shares of it. devices.mu must be held.
func (d *device) close() error {
	if d.gone {
		return nil
	}
	forgets := d.removed && forgetsRemoved()
	if d.removed && !forgets {
		d.log.Error("librdmacm has lost its devices with the removed one: this process must start again to use them", "removed", d.dev.Name())
		d.list = 0
	}
	if err := d.destroy(); err != nil {
		return err
	}
	d.gone, d.shares = true, 0
	delete(devices.shared, d.ctx)
	if !forgets {
		return nil
	}
	for _, other := range devices.shared { // their lists have the removed device too
		if list, _, err := cgo.CMGetDevices(); err == nil {
			cgo.CMFreeDevices(other.list)
			other.list = list
		}
	}
	return nil
}

// forgetsRemoved makes librdmacm list the devices again, after which it closes
// its contexts of removed ones, for which the kernel waits, once no list has
// them.
//
// Some versions before 52 (44.0 to 44.5 among them) compare the addresses of
// their devices wrongly and can forget all of them there; their next call then
// deadlocks. With a list that is never freed they stay in a state in which
// calls fail instead. forgetsRemoved then returns false.
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
	devices.mu.Lock()
	defer devices.mu.Unlock()
	if d := devices.shared[ctx]; d != nil {
		d.removed = true
	}
}
