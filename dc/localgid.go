package dc

import (
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/driver"
)

// localGID is the local GID of an initiator or a target, at the place in the GID table
// where it was seen last. The place changes when the host's address goes and comes back.
type localGID struct {
	dev   *verbs.Device
	at    atomic.Pointer[verbs.GIDEntry]
	moved func() // called when attempt is the first to see that
}

// init finds the GID if gid is zero.
func (l *localGID) init(dev *verbs.Device, gid verbs.GIDEntry, moved func()) (err error) {
	if gid == (verbs.GIDEntry{}) {
		if gid, err = dev.FindGID(verbs.GIDQuery{}); err != nil {
			return err
		}
	}
	l.dev, l.moved = dev, moved
	l.at.Store(&gid)
	return nil
}

func (l *localGID) entry() verbs.GIDEntry { return *l.at.Load() }

// is reports whether e is the same GID, in whatever place.
func (l *localGID) is(e verbs.GIDEntry) bool {
	own := l.entry()
	return e.GID == own.GID && e.Type == own.Type && e.Port == own.Port
}

// put stores where the GID is now, and reports whether that is another place than before.
func (l *localGID) put(e verbs.GIDEntry) (moved bool) {
	return l.at.Swap(&e).Index != e.Index
}

// attempt makes something with the GID, and tries once more if that fails and the GID has
// another place.
func (l *localGID) attempt(try func(verbs.GIDEntry) error) error {
	gid := l.entry()
	err := try(gid)
	if err == nil {
		return nil
	}
	now, failed := driver.FindGIDAgain(l.dev, gid)
	if failed != nil || now.Index == gid.Index {
		return err
	}
	if l.put(now) {
		l.moved()
	}
	return try(now)
}
