package nldev

import (
	"errors"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The protocol (include/uapi/rdma/rdma_netlink.h). The message type is the
// client in the upper six bits and the command in the lower ten.
const client = 5

// Commands.
const (
	CmdGet     = 1
	CmdNewLink = 3
	CmdDelLink = 4

	cmdPortGet = 5
	cmdSysGet  = 6
	cmdCharDev = 15
)

// Attributes.
const (
	AttrDevIndex   = 1
	AttrDevName    = 2
	AttrNetdevName = 51
	AttrLinkType   = 65

	attrPortIndex  = 3
	attrFirmware   = 5
	attrNodeGUID   = 6
	attrPortState  = 12
	attrNetdev     = 50
	attrNetnsMode  = 66
	attrProtocol   = 67
	attrCharType   = 69
	attrCharName   = 70
	attrCharNumber = 72
	attrDriverID   = 73
)

// Request sends one request and returns the replies. [ErrNone] means that the kernel
// has no RDMA netlink; other errors are the kernel's errno.
func Request(cmd uint16, flags netlink.HeaderFlags, attrs []byte) ([]netlink.Message, error) {
	c, err := netlink.Dial(unix.NETLINK_RDMA, nil)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, errors.Join(ErrNone, err)
	}
	if err != nil {
		return nil, os.NewSyscallError("netlink rdma", err)
	}
	defer c.Close()
	return c.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(client<<10 | cmd), Flags: netlink.Request | flags},
		Data:   attrs,
	})
}

// about encodes the attributes that name a device and, unless it is 0, a port.
func about(dev uint32, port uint32) []byte {
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(AttrDevIndex, dev)
	if port != 0 {
		ae.Uint32(attrPortIndex, port)
	}
	b, err := ae.Encode()
	if err != nil {
		panic(err) // two integers always fit
	}
	return b
}
