//go:build cgo

package cgo

/*
#cgo LDFLAGS: -lrdmacm -libverbs
#include "cm.h"

enum {
	gv_cm_off_ah      = offsetof(struct gv_cm_event, ah),
	gv_cm_off_private = offsetof(struct gv_cm_event, private_data),
};
*/
import "C"

import "unsafe"

var (
	_ = [1]struct{}{}[unsafe.Sizeof(CMEvent{})-C.sizeof_struct_gv_cm_event]
	_ = [1]struct{}{}[unsafe.Offsetof(CMEvent{}.AH)-C.gv_cm_off_ah]
	_ = [1]struct{}{}[unsafe.Offsetof(CMEvent{}.PrivateData)-C.gv_cm_off_private]
	_ = [1]struct{}{}[unsafe.Sizeof(SockAddr{})-C.sizeof_struct_sockaddr_in6]
)

func (h CMID) c() *C.struct_rdma_cm_id              { return ptr[C.struct_rdma_cm_id](h) }
func (h CMChannel) c() *C.struct_rdma_event_channel { return ptr[C.struct_rdma_event_channel](h) }

func (s *SockAddr) c() *C.struct_sockaddr { return (*C.struct_sockaddr)(unsafe.Pointer(s)) }

// CMCreateChannel opens an event channel and returns its descriptor, which
// belongs to the channel.
func CMCreateChannel() (CMChannel, int, error) {
	p, err := C.rdma_create_event_channel()
	ch, err := handle[CMChannel](p, err)
	if err != nil {
		return 0, -1, err
	}
	return ch, int(p.fd), nil
}

// CMDestroyChannel closes a channel without ids.
func CMDestroyChannel(ch CMChannel) { C.rdma_destroy_event_channel(ch.c()) }

// CMTake takes and acknowledges one event of a channel with a non-blocking
// descriptor.
func CMTake(ch CMChannel, ev *CMEvent) (bool, error) {
	n, err := polled(C.gv_cm_take(C.uintptr_t(ch), (*C.struct_gv_cm_event)(unsafe.Pointer(ev))))
	return n > 0, err
}

// CMCreateID makes an id. Its events carry the token.
func CMCreateID(ch CMChannel, token uint64, portSpace int) (CMID, error) {
	var id C.uintptr_t
	r, err := C.gv_cm_create_id(C.uintptr_t(ch), C.uintptr_t(token), C.int(portSpace), &id)
	return CMID(id), status(r, err)
}

// CMSetToken changes the token: the id of a new request has its listener's.
func CMSetToken(id CMID, token uint64) { C.gv_cm_set_token(C.uintptr_t(id), C.uintptr_t(token)) }

// CMDestroyID destroys an id. It waits for calls of [CMTake] that are handling
// an event of the id, and for nothing else.
func CMDestroyID(id CMID) error {
	r, err := C.rdma_destroy_id(id.c())
	return status(r, err)
}

// CMContext is the device context that an id is bound to, or 0. It belongs to
// librdmacm, which has one for each device.
func CMContext(id CMID) Context { return Context(uintptr(unsafe.Pointer(id.c().verbs))) }

// CMPort is the port of the device that an id is bound to.
func CMPort(id CMID) uint8 { return uint8(id.c().port_num) }

// CMAddrs are the local and the remote address of an id.
func CMAddrs(id CMID) (local, remote SockAddr) {
	a := (*C.struct_rdma_addr)(unsafe.Pointer(&id.c().route.addr))
	p := (*[2]C.struct_sockaddr_storage)(unsafe.Pointer(a))
	copy(local.b[:], (*[28]byte)(unsafe.Pointer(&p[0]))[:])
	copy(remote.b[:], (*[28]byte)(unsafe.Pointer(&p[1]))[:])
	return local, remote
}

// CMBind binds an id to a local address.
func CMBind(id CMID, local *SockAddr) error {
	r, err := C.rdma_bind_addr(id.c(), local.c())
	return status(r, err)
}

// CMResolveAddr finds the device and the neighbour; local may be nil. An event
// reports the end.
func CMResolveAddr(id CMID, local, remote *SockAddr, timeoutMS int) error {
	r, err := C.rdma_resolve_addr(id.c(), local.c(), remote.c(), C.int(timeoutMS))
	return status(r, err)
}

// CMResolveRoute finds the path. An event reports the end.
func CMResolveRoute(id CMID, timeoutMS int) error {
	r, err := C.rdma_resolve_route(id.c(), C.int(timeoutMS))
	return status(r, err)
}

func CMListen(id CMID, backlog int) error {
	r, err := C.rdma_listen(id.c(), C.int(backlog))
	return status(r, err)
}

// CMConnect sends the request; for UD it asks for the peer's queue pair.
func CMConnect(id CMID, p *CMParam) error {
	r, err := C.gv_cm_connect(C.uintptr_t(id), C.uint32_t(p.QPN), p.depths(), bytesAt(p.PrivateData), C.uint8_t(len(p.PrivateData)))
	return status(r, err)
}

// CMAccept accepts a connection request.
func CMAccept(id CMID, p *CMParam) error {
	r, err := C.gv_cm_accept(C.uintptr_t(id), C.uint32_t(p.QPN), p.depths(), bytesAt(p.PrivateData), C.uint8_t(len(p.PrivateData)))
	return status(r, err)
}

func (p *CMParam) depths() *C.uint8_t { return (*C.uint8_t)(&p.ResponderResources) }

func bytesAt(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func CMReject(id CMID, private []byte) error {
	r, err := C.rdma_reject(id.c(), bytesAt(private), C.uint8_t(len(private)))
	return status(r, err)
}

// CMDisconnect asks the peer to disconnect, or replies to its request to.
func CMDisconnect(id CMID) error {
	r, err := C.rdma_disconnect(id.c())
	return status(r, err)
}

// CMInitQPAttr stores the attributes that bring a queue pair to a state in a.
func CMInitQPAttr(id CMID, state uint32, a *QPAttr) (mask uint32, err error) {
	var c C.struct_ibv_qp_attr
	var m C.uint32_t
	r, err := C.gv_cm_init_qp_attr(C.uintptr_t(id), &c, C.uint32_t(state), &m)
	toGo(&c, a)
	return uint32(m), status(r, err)
}

// CMInit brings a fresh queue pair to INIT with those access rights. For an
// error a and mask are those of the call that failed.
func CMInit(id CMID, qp QP, access uint32, a *QPAttr) (mask uint32, err error) {
	var c C.struct_ibv_qp_attr
	var m C.uint32_t
	r, err := C.gv_cm_init(C.uintptr_t(id), C.uintptr_t(qp), C.uint32_t(access), &c, &m)
	toGo(&c, a)
	return uint32(m), status(r, err)
}

// CMConnected brings a queue pair from INIT to RTS and, if establish, tells the
// peer. Negative depths mean the connection manager's. state is the last one
// that was reached; for an error a and mask are those of the call that failed.
func CMConnected(id CMID, qp QP, responder, initiator int, establish bool, a *QPAttr) (mask, state uint32, err error) {
	var c C.struct_ibv_qp_attr
	var m C.uint32_t
	var stage C.int
	r, err := C.gv_cm_connected(C.uintptr_t(id), C.uintptr_t(qp), C.int(responder), C.int(initiator), cBool(establish),
		&c, &m, &stage)
	toGo(&c, a)
	err = status(r, err)
	state = C.IBV_QPS_INIT
	switch {
	case err == nil || stage == C.GV_CM_ESTABLISH:
		state = C.IBV_QPS_RTS
	case stage >= C.GV_CM_ATTR_RTS:
		state = C.IBV_QPS_RTR
	}
	return uint32(m), state, err
}

// CMSetTOS sets the type of service of connections made later.
func CMSetTOS(id CMID, tos uint8) error {
	return setOption(id, C.RDMA_OPTION_ID_TOS, unsafe.Pointer(&tos), unsafe.Sizeof(tos))
}

// CMSetIPv6Only makes an id of an IPv6 address leave IPv4 to others.
func CMSetIPv6Only(id CMID, on bool) error {
	v := cBool(on)
	return setOption(id, C.RDMA_OPTION_ID_AFONLY, unsafe.Pointer(&v), unsafe.Sizeof(v))
}

// CMSetAckTimeout sets the acknowledgement timeout, 4.096 us * 2^n.
func CMSetAckTimeout(id CMID, n uint8) error {
	return setOption(id, C.RDMA_OPTION_ID_ACK_TIMEOUT, unsafe.Pointer(&n), unsafe.Sizeof(n))
}

func setOption(id CMID, option C.int, p unsafe.Pointer, size uintptr) error {
	r, err := C.rdma_set_option(id.c(), C.RDMA_OPTION_ID, option, p, C.size_t(size))
	return status(r, err)
}

// CMJoin joins a multicast group; an event that carries the token tells the
// end.
func CMJoin(id CMID, group *SockAddr, token uint64) error {
	r, err := C.gv_cm_join(C.uintptr_t(id), group.c(), C.uintptr_t(token))
	return status(r, err)
}

// CMLeave leaves a group.
func CMLeave(id CMID, group *SockAddr) error {
	r, err := C.rdma_leave_multicast(id.c(), group.c())
	return status(r, err)
}

// CMGetDevices lists the contexts that librdmacm has for the devices of this
// host; it opens those that it has not opened. They stay open until
// [CMFreeDevices].
func CMGetDevices() (CMDevices, []Context, error) {
	var n C.int
	p, err := C.rdma_get_devices(&n)
	list, err := handle[CMDevices](p, err)
	if err != nil {
		return 0, nil, err
	}
	out := make([]Context, n)
	for i, c := range unsafe.Slice(p, int(n)) {
		out[i] = Context(uintptr(unsafe.Pointer(c)))
	}
	return list, out, nil
}

func CMFreeDevices(list CMDevices) { C.rdma_free_devices(ptr[*C.struct_ibv_context](list)) }

// ContextName is the kernel's name of a context's device.
func ContextName(ctx Context) string { return C.GoString(C.ibv_get_device_name(ctx.c().device)) }

// ContextTransport is the transport of a context's device (enum
// ibv_transport_type).
func ContextTransport(ctx Context) int32 { return int32(ctx.c().device.transport_type) }

// AttachMcast makes a UD queue pair receive what is sent to a group.
func AttachMcast(qp QP, gid [16]byte, lid uint16) error {
	r, err := C.ibv_attach_mcast(qp.c(), (*C.union_ibv_gid)(unsafe.Pointer(&gid)), C.uint16_t(lid))
	return status(r, err)
}

func DetachMcast(qp QP, gid [16]byte, lid uint16) error {
	r, err := C.ibv_detach_mcast(qp.c(), (*C.union_ibv_gid)(unsafe.Pointer(&gid)), C.uint16_t(lid))
	return status(r, err)
}

// CMEventString is librdmacm's own text for an event.
func CMEventString(typ uint32) string { return C.GoString(C.rdma_event_str(typ)) }
