//go:build cgo

package cgo

/*
#include "driver.h"
#include <endian.h>
#include <stddef.h>
#include <string.h>

// A rule as Go says it: FlowAttr in types.go, with the addresses as bytes.
struct gv_flow {
	struct ibv_flow_attr attr;
	int ethernet, ip_version;
	uint32_t transport;
	struct ibv_flow_spec_eth eth;
	struct ibv_flow_spec_ipv4 ipv4;
	struct ibv_flow_spec_ipv6 ipv6;
	struct ibv_flow_spec_tcp_udp ports;
};

static void gv_add_spec(struct ibv_flow_attr *a, void *spec, uint32_t type, uint16_t size)
{
	struct ibv_flow_spec *s = spec;

	s->hdr.type = type;
	s->hdr.size = size;
	memcpy((char *)a + a->size, spec, size);
	a->size += size;
	a->num_of_specs++;
}

static void gv_flow_macs(struct ibv_flow_eth_filter *f, const uint8_t *dst, const uint8_t *src, uint16_t ethertype, uint16_t vlan)
{
	memcpy(f->dst_mac, dst, 6);
	memcpy(f->src_mac, src, 6);
	f->ether_type = htobe16(ethertype);
	f->vlan_tag = htobe16(vlan);
}

static void gv_flow_addresses(struct gv_flow *f, int mask, const uint8_t *src, const uint8_t *dst)
{
	struct ibv_flow_ipv4_filter *four = mask ? &f->ipv4.mask : &f->ipv4.val;
	struct ibv_flow_ipv6_filter *six = mask ? &f->ipv6.mask : &f->ipv6.val;

	memcpy(&four->src_ip, src, 4);
	memcpy(&four->dst_ip, dst, 4);
	memcpy(six->src_ip, src, 16);
	memcpy(six->dst_ip, dst, 16);
}

static void gv_flow_ports(struct ibv_flow_tcp_udp_filter *f, uint16_t src, uint16_t dst)
{
	f->src_port = htobe16(src);
	f->dst_port = htobe16(dst);
}

// The headers stand behind the attributes in the order of the packet.
static struct ibv_flow *gv_create_flow(uintptr_t qp, struct gv_flow *f)
{
	struct {
		struct ibv_flow_attr attr;
		char specs[sizeof(struct ibv_flow_spec_eth) + sizeof(struct ibv_flow_spec_ipv6) + sizeof(struct ibv_flow_spec_tcp_udp)];
	} all = { .attr = f->attr };

	_Static_assert(offsetof(__typeof__(all), specs) == sizeof(struct ibv_flow_attr), "specs follow the attributes");
	all.attr.size = sizeof(all.attr);
	if (f->ethernet)
		gv_add_spec(&all.attr, &f->eth, IBV_FLOW_SPEC_ETH, sizeof(f->eth));
	if (f->ip_version == 4)
		gv_add_spec(&all.attr, &f->ipv4, IBV_FLOW_SPEC_IPV4, sizeof(f->ipv4));
	if (f->ip_version == 6)
		gv_add_spec(&all.attr, &f->ipv6, IBV_FLOW_SPEC_IPV6, sizeof(f->ipv6));
	if (f->transport)
		gv_add_spec(&all.attr, &f->ports, f->transport, sizeof(f->ports));
	return gv_driver()->create_flow((struct ibv_qp *)qp, &all.attr);
}

static int gv_destroy_flow(struct ibv_flow *f) { return gv_driver()->destroy_flow(f); }
*/
import "C"

func (h Flow) c() *C.struct_ibv_flow { return ptr[C.struct_ibv_flow](h) }

func bytesOf(b []byte) *C.uint8_t { return (*C.uint8_t)(&b[0]) }

// CreateFlow makes a queue pair receive the packets that fit a.
func CreateFlow(qp QP, a *FlowAttr) (Flow, error) {
	var f C.struct_gv_flow
	f.attr._type = a.Type
	f.attr.priority, f.attr.port, f.attr.flags = C.uint16_t(a.Priority), C.uint8_t(a.Port), C.uint32_t(a.Flags)
	f.ethernet, f.ip_version, f.transport = cBool(a.Ethernet), C.int(a.IPVersion), C.uint32_t(a.Transport)
	C.gv_flow_macs(&f.eth.val, bytesOf(a.DstMAC[:]), bytesOf(a.SrcMAC[:]), C.uint16_t(a.EtherType), C.uint16_t(a.VLAN))
	C.gv_flow_macs(&f.eth.mask, bytesOf(a.DstMACMask[:]), bytesOf(a.SrcMACMask[:]), C.uint16_t(a.EtherTypeMask), C.uint16_t(a.VLANMask))
	C.gv_flow_addresses(&f, 0, bytesOf(a.SrcIP[:]), bytesOf(a.DstIP[:]))
	C.gv_flow_addresses(&f, 1, bytesOf(a.SrcIPMask[:]), bytesOf(a.DstIPMask[:]))
	C.gv_flow_ports(&f.ports.val, C.uint16_t(a.SrcPort), C.uint16_t(a.DstPort))
	C.gv_flow_ports(&f.ports.mask, C.uint16_t(a.SrcPortMask), C.uint16_t(a.DstPortMask))
	p, err := C.gv_create_flow(C.uintptr_t(qp), &f)
	return handle[Flow](p, err)
}

func DestroyFlow(f Flow) error {
	r, err := C.gv_destroy_flow(f.c())
	return status(r, err)
}
