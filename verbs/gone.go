package verbs

import "syscall"

// destroyed returns the result of destroying an object of the device. When a device is
// removed, or resets itself, the kernel destroys all that programs have on it and
// returns EIO to every call from then on: Close of an object has nothing more to do.
// libibverbs keeps its own memory of the object, and its count of an object's children,
// so that a parent is reported as busy. It would free that memory if
// RDMAV_ALLOW_DISASSOC_DESTROY was set, even while an event for the object is being
// delivered.
func (d *Device) destroyed(err error) error {
	if isErrno(err, syscall.EIO) {
		d.gone.Store(true)
	}
	if d.gone.Load() {
		return nil
	}
	return err
}

// Removed reports whether the device is known to be gone. It was removed or reset itself,
// and something on it was closed since, which is how that is noticed. Nothing on it works
// any more, and Close of its objects returns nil. A device that came back must be opened
// again.
func (d *Device) Removed() bool { return d.gone.Load() }
