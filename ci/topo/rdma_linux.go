package topo

import (
	"github.com/mdlayher/netlink"

	"github.com/goverbs/goverbs/internal/nldev"
)

// AddRXE makes a Soft-RoCE device on a network interface.
func AddRXE(name, netdev string) error {
	ae := netlink.NewAttributeEncoder()
	ae.String(nldev.AttrDevName, name)
	ae.String(nldev.AttrLinkType, "rxe")
	ae.String(nldev.AttrNetdevName, netdev)
	b, err := ae.Encode()
	if err != nil {
		return err
	}
	_, err = nldev.Request(nldev.CmdNewLink, netlink.Acknowledge, b)
	return wrap(err, "make %s on %s", name, netdev)
}
