package cgo

import (
	"encoding/binary"
	"net/netip"
)

// Handles of librdmacm, addresses of its objects as those of libibverbs are.
type (
	CMChannel uintptr // struct rdma_event_channel *
	CMID      uintptr // struct rdma_cm_id *
	CMDevices uintptr // struct ibv_context **, from rdma_get_devices
)

// CMEvent has the layout of struct gv_cm_event: an event of the connection
// manager, acknowledged already, with all that it pointed at.
type CMEvent struct {
	ID                 CMID   // of a connection request: the new id
	Token              uint64 // of the id; of a connection request: of the listener
	Group              uint64 // token given with [CMJoin]
	Type               uint32 // enum rdma_cm_event_type
	Status             int32  // negative errno, or the reason of a rejection
	QPN                uint32
	QKey               uint32 // UD
	AH                 AHAttr // UD
	ResponderResources uint8
	InitiatorDepth     uint8
	RetryCount         uint8
	RNRRetryCount      uint8
	PrivateLen         uint8
	PrivateData        [255]byte
}

// CMParam are the parameters of connect and accept.
type CMParam struct {
	QPN                uint32
	ResponderResources uint8
	InitiatorDepth     uint8
	RetryCount         uint8
	RNRRetryCount      uint8
	PrivateData        []byte
}

// SockAddr is room for a struct sockaddr_in or sockaddr_in6.
type SockAddr struct {
	_ [0]uint32 // as aligned as the fields of C
	b [28]byte
}

// Address families as Linux numbers them.
const (
	afInet  = 2
	afInet6 = 10
)

// SockAddrOf encodes an address; scope is the interface index of an IPv6
// address that needs one.
func SockAddrOf(a netip.AddrPort, scope uint32) SockAddr {
	var s SockAddr
	binary.BigEndian.PutUint16(s.b[2:], a.Port())
	ip := a.Addr().Unmap()
	if ip.Is4() {
		binary.NativeEndian.PutUint16(s.b[:], afInet)
		copy(s.b[4:], ip.AsSlice())
	} else {
		binary.NativeEndian.PutUint16(s.b[:], afInet6)
		copy(s.b[8:], ip.AsSlice())
		binary.NativeEndian.PutUint32(s.b[24:], scope)
	}
	return s
}

// Scope returns the interface index of an IPv6 address that needs one, else 0.
func (s *SockAddr) Scope() uint32 {
	if binary.NativeEndian.Uint16(s.b[:]) != afInet6 {
		return 0
	}
	return binary.NativeEndian.Uint32(s.b[24:])
}

// AddrPort decodes the address; it is not valid for another family than the
// two.
func (s *SockAddr) AddrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16(s.b[2:])
	switch binary.NativeEndian.Uint16(s.b[:]) {
	case afInet:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s.b[4:8])), port)
	case afInet6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(s.b[8:24])).Unmap(), port)
	}
	return netip.AddrPort{}
}
