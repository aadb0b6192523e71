package topo

import (
	"fmt"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// RDMA netlink (include/uapi/rdma/rdma_netlink.h). The message type is the
// client in the upper six bits and the command in the lower ten.
const (
	clientNLDev = 5

	cmdNewLink = 3
	cmdDelLink = 4

	attrDevIndex = 1
	attrDevName  = 2
	attrNdevName = 51
	attrLinkType = 65
)

// nldev sends one request to the RDMA subsystem.
func nldev(cmd uint16, flags netlink.HeaderFlags, attrs []byte) ([]netlink.Message, error) {
	c, err := netlink.Dial(unix.NETLINK_RDMA, nil)
	if err != nil {
		return nil, os.NewSyscallError("netlink rdma", err)
	}
	defer c.Close()
	return c.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(clientNLDev<<10 | cmd), Flags: netlink.Request | flags},
		Data:   attrs,
	})
}

// AddRXE makes a Soft-RoCE device on a network interface.
func AddRXE(name, netdev string) error {
	ae := netlink.NewAttributeEncoder()
	ae.String(attrDevName, name)
	ae.String(attrLinkType, "rxe")
	ae.String(attrNdevName, netdev)
	b, err := ae.Encode()
	if err != nil {
		return err
	}
	_, err = nldev(cmdNewLink, netlink.Acknowledge, b)
	return wrap(err, "make %s on %s", name, netdev)
}

// DelRDMA removes an RDMA device that was made with AddRXE.
func DelRDMA(name string) error {
	index, err := deviceIndex(name)
	if err != nil {
		return err
	}
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(attrDevIndex, index)
	b, err := ae.Encode()
	if err != nil {
		return err
	}
	_, err = nldev(cmdDelLink, netlink.Acknowledge, b)
	return wrap(err, "remove %s", name)
}

func deviceIndex(name string) (uint32, error) {
	devices, err := rdmaDevices()
	if err != nil {
		return 0, err
	}
	for index, n := range devices {
		if n == name {
			return index, nil
		}
	}
	return 0, fmt.Errorf("no RDMA device %s", name)
}
