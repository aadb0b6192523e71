//go:build cgo

package cgo

/*
#include <stddef.h>
#include "shim.h"
#include "driver.h"

// Members of unnamed unions and of nested structures have no C.name in Go.
enum {
	gv_swr_imm    = offsetof(struct ibv_send_wr, imm_data),
	gv_swr_raddr  = offsetof(struct ibv_send_wr, wr.rdma.remote_addr),
	gv_swr_rkey   = offsetof(struct ibv_send_wr, wr.rdma.rkey),
	gv_swr_cmp    = offsetof(struct ibv_send_wr, wr.atomic.compare_add),
	gv_swr_swap   = offsetof(struct ibv_send_wr, wr.atomic.swap),
	gv_swr_arkey  = offsetof(struct ibv_send_wr, wr.atomic.rkey),
	gv_swr_ah     = offsetof(struct ibv_send_wr, wr.ud.ah),
	gv_swr_qpn    = offsetof(struct ibv_send_wr, wr.ud.remote_qpn),
	gv_swr_qkey   = offsetof(struct ibv_send_wr, wr.ud.remote_qkey),
	gv_swr_inv    = offsetof(struct ibv_send_wr, invalidate_rkey),
	gv_swr_mw     = offsetof(struct ibv_send_wr, bind_mw.mw),
	gv_swr_mwrkey = offsetof(struct ibv_send_wr, bind_mw.rkey),
	gv_swr_mwmr   = offsetof(struct ibv_send_wr, bind_mw.bind_info.mr),
	gv_swr_mwacc  = offsetof(struct ibv_send_wr, bind_mw.bind_info.mw_access_flags),
	gv_wc_imm     = offsetof(struct ibv_wc, imm_data),
};
*/
import "C"

import "unsafe"

// Each line fails to compile when a Go structure and its C twin differ: a
// negative array length, or a constant index out of range.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(DeviceAttr{})-C.sizeof_struct_ibv_device_attr]
	_ = [1]struct{}{}[unsafe.Sizeof(PortAttr{})-C.sizeof_struct_ibv_port_attr]
	_ = [1]struct{}{}[unsafe.Sizeof(GIDEntry{})-C.sizeof_struct_ibv_gid_entry]
	_ = [1]struct{}{}[unsafe.Sizeof(SGE{})-C.sizeof_struct_ibv_sge]
	_ = [1]struct{}{}[unsafe.Sizeof(SendWR{})-C.sizeof_struct_ibv_send_wr]
	_ = [1]struct{}{}[unsafe.Sizeof(RecvWR{})-C.sizeof_struct_ibv_recv_wr]
	_ = [1]struct{}{}[unsafe.Sizeof(WC{})-C.sizeof_struct_ibv_wc]
	_ = [1]struct{}{}[unsafe.Sizeof(GlobalRoute{})-C.sizeof_struct_ibv_global_route]
	_ = [1]struct{}{}[unsafe.Sizeof(AHAttr{})-C.sizeof_struct_ibv_ah_attr]
	_ = [1]struct{}{}[unsafe.Sizeof(QPCap{})-C.sizeof_struct_ibv_qp_cap]
	_ = [1]struct{}{}[unsafe.Sizeof(AsyncEvent{})-C.sizeof_struct_ibv_async_event]
	_ = [1]struct{}{}[unsafe.Sizeof(WCEx{})-C.sizeof_struct_gv_wc_ex]
	_ = [1]struct{}{}[unsafe.Sizeof(SRQAttr{})-C.sizeof_struct_ibv_srq_attr]
	_ = [1]struct{}{}[unsafe.Sizeof(EFAAttr{})-C.sizeof_struct_efadv_device_attr]
	_ = [1]struct{}{}[unsafe.Sizeof(QPAttr{})-C.sizeof_struct_ibv_qp_attr]

	_ = [1]struct{}{}[unsafe.Offsetof(DeviceAttr{}.MaxQP)-unsafe.Offsetof(C.struct_ibv_device_attr{}.max_qp)]
	_ = [1]struct{}{}[unsafe.Offsetof(DeviceAttr{}.AtomicCap)-unsafe.Offsetof(C.struct_ibv_device_attr{}.atomic_cap)]
	_ = [1]struct{}{}[unsafe.Offsetof(DeviceAttr{}.MaxAH)-unsafe.Offsetof(C.struct_ibv_device_attr{}.max_ah)]
	_ = [1]struct{}{}[unsafe.Offsetof(DeviceAttr{}.MaxSRQSGE)-unsafe.Offsetof(C.struct_ibv_device_attr{}.max_srq_sge)]
	_ = [1]struct{}{}[unsafe.Offsetof(DeviceAttr{}.PhysPortCnt)-unsafe.Offsetof(C.struct_ibv_device_attr{}.phys_port_cnt)]

	_ = [1]struct{}{}[unsafe.Offsetof(PortAttr{}.MaxMsgSize)-unsafe.Offsetof(C.struct_ibv_port_attr{}.max_msg_sz)]
	_ = [1]struct{}{}[unsafe.Offsetof(PortAttr{}.LID)-unsafe.Offsetof(C.struct_ibv_port_attr{}.lid)]
	_ = [1]struct{}{}[unsafe.Offsetof(PortAttr{}.LinkLayer)-unsafe.Offsetof(C.struct_ibv_port_attr{}.link_layer)]

	_ = [1]struct{}{}[unsafe.Offsetof(GIDEntry{}.Type)-unsafe.Offsetof(C.struct_ibv_gid_entry{}.gid_type)]
	_ = [1]struct{}{}[unsafe.Offsetof(GIDEntry{}.IfIndex)-unsafe.Offsetof(C.struct_ibv_gid_entry{}.ndev_ifindex)]

	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.SGList)-unsafe.Offsetof(C.struct_ibv_send_wr{}.sg_list)]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.Opcode)-unsafe.Offsetof(C.struct_ibv_send_wr{}.opcode)]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.Flags)-unsafe.Offsetof(C.struct_ibv_send_wr{}.send_flags)]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.ImmData)-C.gv_swr_imm]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.op)-C.gv_swr_raddr]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.op)+8-C.gv_swr_rkey]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.op)+8-C.gv_swr_cmp]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.op)+16-C.gv_swr_swap]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.op)+24-C.gv_swr_arkey]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.op)-C.gv_swr_ah]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.op)+8-C.gv_swr_qpn]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.op)+12-C.gv_swr_qkey]

	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.ImmData)-C.gv_swr_inv]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.tail)-C.gv_swr_mw]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.tail)+8-C.gv_swr_mwrkey]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.tail)+16-C.gv_swr_mwmr]
	_ = [1]struct{}{}[unsafe.Offsetof(SendWR{}.tail)+40-C.gv_swr_mwacc]
	_ = [1]struct{}{}[unsafe.Offsetof(C.struct_gv_dest{}.dc_key)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(C.struct_gv_dest{}.stream)-24]

	_ = [1]struct{}{}[unsafe.Offsetof(RecvWR{}.NumSGE)-unsafe.Offsetof(C.struct_ibv_recv_wr{}.num_sge)]

	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.ByteLen)-unsafe.Offsetof(C.struct_ibv_wc{}.byte_len)]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.ImmData)-C.gv_wc_imm]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.Flags)-unsafe.Offsetof(C.struct_ibv_wc{}.wc_flags)]
	_ = [1]struct{}{}[unsafe.Offsetof(WC{}.DLIDPathBits)-unsafe.Offsetof(C.struct_ibv_wc{}.dlid_path_bits)]

	_ = [1]struct{}{}[unsafe.Offsetof(AHAttr{}.PortNum)-unsafe.Offsetof(C.struct_ibv_ah_attr{}.port_num)]
	_ = [1]struct{}{}[unsafe.Offsetof(QPAttr{}.AH)-unsafe.Offsetof(C.struct_ibv_qp_attr{}.ah_attr)]
	_ = [1]struct{}{}[unsafe.Offsetof(QPAttr{}.PKeyIndex)-unsafe.Offsetof(C.struct_ibv_qp_attr{}.pkey_index)]
	_ = [1]struct{}{}[unsafe.Offsetof(QPAttr{}.AltTimeout)-unsafe.Offsetof(C.struct_ibv_qp_attr{}.alt_timeout)]
	_ = [1]struct{}{}[unsafe.Offsetof(QPAttr{}.RateLimit)-unsafe.Offsetof(C.struct_ibv_qp_attr{}.rate_limit)]
)
