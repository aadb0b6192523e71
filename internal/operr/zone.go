package operr

import (
	"fmt"
	"net"
	"net/netip"
)

// Zoneless returns the remedy for an IPv6 link-local address without a zone, which may be on
// any netdev, and nothing for any other address.
func Zoneless(a netip.Addr) string {
	if a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "" {
		return fmt.Sprintf("name its netdev, as in %v%%eth0", a)
	}
	return ""
}

// Dial returns an error of dialing "host:port" with the remedy for its address, if there is one.
func Dial(address string, err error) error {
	host, _, _ := net.SplitHostPort(address)
	if a, perr := netip.ParseAddr(host); err != nil && perr == nil {
		if remedy := Zoneless(a); remedy != "" {
			return fmt.Errorf("%w (%s)", err, remedy)
		}
	}
	return err
}
