package link

import (
	"net/netip"

	"github.com/goverbs/goverbs/verbs"
)

// FindGID finds the GID of an address, or any that the device has, where it has none of that
// address or the address is unspecified.
func FindGID(d *verbs.Device, at netip.Addr) (verbs.GIDEntry, error) {
	if !at.IsUnspecified() {
		if gid, err := d.FindGID(verbs.GIDQuery{Addr: at}); err == nil {
			return gid, nil
		}
	}
	return d.FindGID(verbs.GIDQuery{})
}
