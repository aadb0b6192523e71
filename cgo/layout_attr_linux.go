//go:build cgo

package cgo

/*
#include <stddef.h>
#include "shim.h"
#include "driver.h"

// The union of struct ibv_async_event has no name for its address in Go.
enum {
	gv_async_element = offsetof(struct ibv_async_event, element),
};
*/
import "C"

import "unsafe"

// Attributes, which the library reads or fills through a pointer. These
// structures grow at their end: struct ibv_port_attr has active_speed_ex since
// rdma-core 49. Each field that Go knows lies where C has it and is as large.

func _(g DeviceAttr, c C.struct_ibv_device_attr) {
	_ = same{}[(unsafe.Offsetof(g.FWVer)-unsafe.Offsetof(c.fw_ver))|(unsafe.Sizeof(g.FWVer)-unsafe.Sizeof(c.fw_ver))]
	_ = same{}[(unsafe.Offsetof(g.NodeGUID)-unsafe.Offsetof(c.node_guid))|(unsafe.Sizeof(g.NodeGUID)-unsafe.Sizeof(c.node_guid))]
	_ = same{}[(unsafe.Offsetof(g.SysImageGUID)-unsafe.Offsetof(c.sys_image_guid))|(unsafe.Sizeof(g.SysImageGUID)-unsafe.Sizeof(c.sys_image_guid))]
	_ = same{}[(unsafe.Offsetof(g.MaxMRSize)-unsafe.Offsetof(c.max_mr_size))|(unsafe.Sizeof(g.MaxMRSize)-unsafe.Sizeof(c.max_mr_size))]
	_ = same{}[(unsafe.Offsetof(g.PageSizeCap)-unsafe.Offsetof(c.page_size_cap))|(unsafe.Sizeof(g.PageSizeCap)-unsafe.Sizeof(c.page_size_cap))]
	_ = same{}[(unsafe.Offsetof(g.VendorID)-unsafe.Offsetof(c.vendor_id))|(unsafe.Sizeof(g.VendorID)-unsafe.Sizeof(c.vendor_id))]
	_ = same{}[(unsafe.Offsetof(g.VendorPartID)-unsafe.Offsetof(c.vendor_part_id))|(unsafe.Sizeof(g.VendorPartID)-unsafe.Sizeof(c.vendor_part_id))]
	_ = same{}[(unsafe.Offsetof(g.HWVer)-unsafe.Offsetof(c.hw_ver))|(unsafe.Sizeof(g.HWVer)-unsafe.Sizeof(c.hw_ver))]
	_ = same{}[(unsafe.Offsetof(g.MaxQP)-unsafe.Offsetof(c.max_qp))|(unsafe.Sizeof(g.MaxQP)-unsafe.Sizeof(c.max_qp))]
	_ = same{}[(unsafe.Offsetof(g.MaxQPWR)-unsafe.Offsetof(c.max_qp_wr))|(unsafe.Sizeof(g.MaxQPWR)-unsafe.Sizeof(c.max_qp_wr))]
	_ = same{}[(unsafe.Offsetof(g.DeviceCapFlags)-unsafe.Offsetof(c.device_cap_flags))|(unsafe.Sizeof(g.DeviceCapFlags)-unsafe.Sizeof(c.device_cap_flags))]
	_ = same{}[(unsafe.Offsetof(g.MaxSGE)-unsafe.Offsetof(c.max_sge))|(unsafe.Sizeof(g.MaxSGE)-unsafe.Sizeof(c.max_sge))]
	_ = same{}[(unsafe.Offsetof(g.MaxSGERead)-unsafe.Offsetof(c.max_sge_rd))|(unsafe.Sizeof(g.MaxSGERead)-unsafe.Sizeof(c.max_sge_rd))]
	_ = same{}[(unsafe.Offsetof(g.MaxCQ)-unsafe.Offsetof(c.max_cq))|(unsafe.Sizeof(g.MaxCQ)-unsafe.Sizeof(c.max_cq))]
	_ = same{}[(unsafe.Offsetof(g.MaxCQE)-unsafe.Offsetof(c.max_cqe))|(unsafe.Sizeof(g.MaxCQE)-unsafe.Sizeof(c.max_cqe))]
	_ = same{}[(unsafe.Offsetof(g.MaxMR)-unsafe.Offsetof(c.max_mr))|(unsafe.Sizeof(g.MaxMR)-unsafe.Sizeof(c.max_mr))]
	_ = same{}[(unsafe.Offsetof(g.MaxPD)-unsafe.Offsetof(c.max_pd))|(unsafe.Sizeof(g.MaxPD)-unsafe.Sizeof(c.max_pd))]
	_ = same{}[(unsafe.Offsetof(g.MaxQPRdAtom)-unsafe.Offsetof(c.max_qp_rd_atom))|(unsafe.Sizeof(g.MaxQPRdAtom)-unsafe.Sizeof(c.max_qp_rd_atom))]
	_ = same{}[(unsafe.Offsetof(g.MaxEERdAtom)-unsafe.Offsetof(c.max_ee_rd_atom))|(unsafe.Sizeof(g.MaxEERdAtom)-unsafe.Sizeof(c.max_ee_rd_atom))]
	_ = same{}[(unsafe.Offsetof(g.MaxResRdAtom)-unsafe.Offsetof(c.max_res_rd_atom))|(unsafe.Sizeof(g.MaxResRdAtom)-unsafe.Sizeof(c.max_res_rd_atom))]
	_ = same{}[(unsafe.Offsetof(g.MaxQPInitRdAtom)-unsafe.Offsetof(c.max_qp_init_rd_atom))|(unsafe.Sizeof(g.MaxQPInitRdAtom)-unsafe.Sizeof(c.max_qp_init_rd_atom))]
	_ = same{}[(unsafe.Offsetof(g.MaxEEInitRdAtom)-unsafe.Offsetof(c.max_ee_init_rd_atom))|(unsafe.Sizeof(g.MaxEEInitRdAtom)-unsafe.Sizeof(c.max_ee_init_rd_atom))]
	_ = same{}[(unsafe.Offsetof(g.AtomicCap)-unsafe.Offsetof(c.atomic_cap))|(unsafe.Sizeof(g.AtomicCap)-unsafe.Sizeof(c.atomic_cap))]
	_ = same{}[(unsafe.Offsetof(g.MaxEE)-unsafe.Offsetof(c.max_ee))|(unsafe.Sizeof(g.MaxEE)-unsafe.Sizeof(c.max_ee))]
	_ = same{}[(unsafe.Offsetof(g.MaxRDD)-unsafe.Offsetof(c.max_rdd))|(unsafe.Sizeof(g.MaxRDD)-unsafe.Sizeof(c.max_rdd))]
	_ = same{}[(unsafe.Offsetof(g.MaxMW)-unsafe.Offsetof(c.max_mw))|(unsafe.Sizeof(g.MaxMW)-unsafe.Sizeof(c.max_mw))]
	_ = same{}[(unsafe.Offsetof(g.MaxRawIPv6QP)-unsafe.Offsetof(c.max_raw_ipv6_qp))|(unsafe.Sizeof(g.MaxRawIPv6QP)-unsafe.Sizeof(c.max_raw_ipv6_qp))]
	_ = same{}[(unsafe.Offsetof(g.MaxRawEthyQP)-unsafe.Offsetof(c.max_raw_ethy_qp))|(unsafe.Sizeof(g.MaxRawEthyQP)-unsafe.Sizeof(c.max_raw_ethy_qp))]
	_ = same{}[(unsafe.Offsetof(g.MaxMcastGrp)-unsafe.Offsetof(c.max_mcast_grp))|(unsafe.Sizeof(g.MaxMcastGrp)-unsafe.Sizeof(c.max_mcast_grp))]
	_ = same{}[(unsafe.Offsetof(g.MaxMcastQPAttach)-unsafe.Offsetof(c.max_mcast_qp_attach))|(unsafe.Sizeof(g.MaxMcastQPAttach)-unsafe.Sizeof(c.max_mcast_qp_attach))]
	_ = same{}[(unsafe.Offsetof(g.MaxTotalMcastAttach)-unsafe.Offsetof(c.max_total_mcast_qp_attach))|(unsafe.Sizeof(g.MaxTotalMcastAttach)-unsafe.Sizeof(c.max_total_mcast_qp_attach))]
	_ = same{}[(unsafe.Offsetof(g.MaxAH)-unsafe.Offsetof(c.max_ah))|(unsafe.Sizeof(g.MaxAH)-unsafe.Sizeof(c.max_ah))]
	_ = same{}[(unsafe.Offsetof(g.MaxFMR)-unsafe.Offsetof(c.max_fmr))|(unsafe.Sizeof(g.MaxFMR)-unsafe.Sizeof(c.max_fmr))]
	_ = same{}[(unsafe.Offsetof(g.MaxMapPerFMR)-unsafe.Offsetof(c.max_map_per_fmr))|(unsafe.Sizeof(g.MaxMapPerFMR)-unsafe.Sizeof(c.max_map_per_fmr))]
	_ = same{}[(unsafe.Offsetof(g.MaxSRQ)-unsafe.Offsetof(c.max_srq))|(unsafe.Sizeof(g.MaxSRQ)-unsafe.Sizeof(c.max_srq))]
	_ = same{}[(unsafe.Offsetof(g.MaxSRQWR)-unsafe.Offsetof(c.max_srq_wr))|(unsafe.Sizeof(g.MaxSRQWR)-unsafe.Sizeof(c.max_srq_wr))]
	_ = same{}[(unsafe.Offsetof(g.MaxSRQSGE)-unsafe.Offsetof(c.max_srq_sge))|(unsafe.Sizeof(g.MaxSRQSGE)-unsafe.Sizeof(c.max_srq_sge))]
	_ = same{}[(unsafe.Offsetof(g.MaxPKeys)-unsafe.Offsetof(c.max_pkeys))|(unsafe.Sizeof(g.MaxPKeys)-unsafe.Sizeof(c.max_pkeys))]
	_ = same{}[(unsafe.Offsetof(g.LocalCAAckDelay)-unsafe.Offsetof(c.local_ca_ack_delay))|(unsafe.Sizeof(g.LocalCAAckDelay)-unsafe.Sizeof(c.local_ca_ack_delay))]
	_ = same{}[(unsafe.Offsetof(g.PhysPortCnt)-unsafe.Offsetof(c.phys_port_cnt))|(unsafe.Sizeof(g.PhysPortCnt)-unsafe.Sizeof(c.phys_port_cnt))]
}

func _(g PortAttr, c C.struct_ibv_port_attr) {
	_ = same{}[(unsafe.Offsetof(g.State)-unsafe.Offsetof(c.state))|(unsafe.Sizeof(g.State)-unsafe.Sizeof(c.state))]
	_ = same{}[(unsafe.Offsetof(g.MaxMTU)-unsafe.Offsetof(c.max_mtu))|(unsafe.Sizeof(g.MaxMTU)-unsafe.Sizeof(c.max_mtu))]
	_ = same{}[(unsafe.Offsetof(g.ActiveMTU)-unsafe.Offsetof(c.active_mtu))|(unsafe.Sizeof(g.ActiveMTU)-unsafe.Sizeof(c.active_mtu))]
	_ = same{}[(unsafe.Offsetof(g.GIDTableLen)-unsafe.Offsetof(c.gid_tbl_len))|(unsafe.Sizeof(g.GIDTableLen)-unsafe.Sizeof(c.gid_tbl_len))]
	_ = same{}[(unsafe.Offsetof(g.PortCapFlags)-unsafe.Offsetof(c.port_cap_flags))|(unsafe.Sizeof(g.PortCapFlags)-unsafe.Sizeof(c.port_cap_flags))]
	_ = same{}[(unsafe.Offsetof(g.MaxMsgSize)-unsafe.Offsetof(c.max_msg_sz))|(unsafe.Sizeof(g.MaxMsgSize)-unsafe.Sizeof(c.max_msg_sz))]
	_ = same{}[(unsafe.Offsetof(g.BadPKeyCntr)-unsafe.Offsetof(c.bad_pkey_cntr))|(unsafe.Sizeof(g.BadPKeyCntr)-unsafe.Sizeof(c.bad_pkey_cntr))]
	_ = same{}[(unsafe.Offsetof(g.QKeyViolCntr)-unsafe.Offsetof(c.qkey_viol_cntr))|(unsafe.Sizeof(g.QKeyViolCntr)-unsafe.Sizeof(c.qkey_viol_cntr))]
	_ = same{}[(unsafe.Offsetof(g.PKeyTableLen)-unsafe.Offsetof(c.pkey_tbl_len))|(unsafe.Sizeof(g.PKeyTableLen)-unsafe.Sizeof(c.pkey_tbl_len))]
	_ = same{}[(unsafe.Offsetof(g.LID)-unsafe.Offsetof(c.lid))|(unsafe.Sizeof(g.LID)-unsafe.Sizeof(c.lid))]
	_ = same{}[(unsafe.Offsetof(g.SMLID)-unsafe.Offsetof(c.sm_lid))|(unsafe.Sizeof(g.SMLID)-unsafe.Sizeof(c.sm_lid))]
	_ = same{}[(unsafe.Offsetof(g.LMC)-unsafe.Offsetof(c.lmc))|(unsafe.Sizeof(g.LMC)-unsafe.Sizeof(c.lmc))]
	_ = same{}[(unsafe.Offsetof(g.MaxVLNum)-unsafe.Offsetof(c.max_vl_num))|(unsafe.Sizeof(g.MaxVLNum)-unsafe.Sizeof(c.max_vl_num))]
	_ = same{}[(unsafe.Offsetof(g.SMSL)-unsafe.Offsetof(c.sm_sl))|(unsafe.Sizeof(g.SMSL)-unsafe.Sizeof(c.sm_sl))]
	_ = same{}[(unsafe.Offsetof(g.SubnetTimeout)-unsafe.Offsetof(c.subnet_timeout))|(unsafe.Sizeof(g.SubnetTimeout)-unsafe.Sizeof(c.subnet_timeout))]
	_ = same{}[(unsafe.Offsetof(g.InitTypeReply)-unsafe.Offsetof(c.init_type_reply))|(unsafe.Sizeof(g.InitTypeReply)-unsafe.Sizeof(c.init_type_reply))]
	_ = same{}[(unsafe.Offsetof(g.ActiveWidth)-unsafe.Offsetof(c.active_width))|(unsafe.Sizeof(g.ActiveWidth)-unsafe.Sizeof(c.active_width))]
	_ = same{}[(unsafe.Offsetof(g.ActiveSpeed)-unsafe.Offsetof(c.active_speed))|(unsafe.Sizeof(g.ActiveSpeed)-unsafe.Sizeof(c.active_speed))]
	_ = same{}[(unsafe.Offsetof(g.PhysState)-unsafe.Offsetof(c.phys_state))|(unsafe.Sizeof(g.PhysState)-unsafe.Sizeof(c.phys_state))]
	_ = same{}[(unsafe.Offsetof(g.LinkLayer)-unsafe.Offsetof(c.link_layer))|(unsafe.Sizeof(g.LinkLayer)-unsafe.Sizeof(c.link_layer))]
	_ = same{}[(unsafe.Offsetof(g.Flags)-unsafe.Offsetof(c.flags))|(unsafe.Sizeof(g.Flags)-unsafe.Sizeof(c.flags))]
	_ = same{}[(unsafe.Offsetof(g.PortCapFlags2)-unsafe.Offsetof(c.port_cap_flags2))|(unsafe.Sizeof(g.PortCapFlags2)-unsafe.Sizeof(c.port_cap_flags2))]
}

func _(g GIDEntry, c C.struct_ibv_gid_entry) {
	_ = same{}[(unsafe.Offsetof(g.GID)-unsafe.Offsetof(c.gid))|(unsafe.Sizeof(g.GID)-unsafe.Sizeof(c.gid))]
	_ = same{}[(unsafe.Offsetof(g.Index)-unsafe.Offsetof(c.gid_index))|(unsafe.Sizeof(g.Index)-unsafe.Sizeof(c.gid_index))]
	_ = same{}[(unsafe.Offsetof(g.Port)-unsafe.Offsetof(c.port_num))|(unsafe.Sizeof(g.Port)-unsafe.Sizeof(c.port_num))]
	_ = same{}[(unsafe.Offsetof(g.Type)-unsafe.Offsetof(c.gid_type))|(unsafe.Sizeof(g.Type)-unsafe.Sizeof(c.gid_type))]
	_ = same{}[(unsafe.Offsetof(g.IfIndex)-unsafe.Offsetof(c.ndev_ifindex))|(unsafe.Sizeof(g.IfIndex)-unsafe.Sizeof(c.ndev_ifindex))]
}

func _(g GlobalRoute, c C.struct_ibv_global_route) {
	_ = same{}[(unsafe.Offsetof(g.DGID)-unsafe.Offsetof(c.dgid))|(unsafe.Sizeof(g.DGID)-unsafe.Sizeof(c.dgid))]
	_ = same{}[(unsafe.Offsetof(g.FlowLabel)-unsafe.Offsetof(c.flow_label))|(unsafe.Sizeof(g.FlowLabel)-unsafe.Sizeof(c.flow_label))]
	_ = same{}[(unsafe.Offsetof(g.SGIDIndex)-unsafe.Offsetof(c.sgid_index))|(unsafe.Sizeof(g.SGIDIndex)-unsafe.Sizeof(c.sgid_index))]
	_ = same{}[(unsafe.Offsetof(g.HopLimit)-unsafe.Offsetof(c.hop_limit))|(unsafe.Sizeof(g.HopLimit)-unsafe.Sizeof(c.hop_limit))]
	_ = same{}[(unsafe.Offsetof(g.TrafficClass)-unsafe.Offsetof(c.traffic_class))|(unsafe.Sizeof(g.TrafficClass)-unsafe.Sizeof(c.traffic_class))]
}

func _(g AHAttr, c C.struct_ibv_ah_attr) {
	_ = same{}[(unsafe.Offsetof(g.GRH)-unsafe.Offsetof(c.grh))|(unsafe.Sizeof(g.GRH)-unsafe.Sizeof(c.grh))]
	_ = same{}[(unsafe.Offsetof(g.DLID)-unsafe.Offsetof(c.dlid))|(unsafe.Sizeof(g.DLID)-unsafe.Sizeof(c.dlid))]
	_ = same{}[(unsafe.Offsetof(g.SL)-unsafe.Offsetof(c.sl))|(unsafe.Sizeof(g.SL)-unsafe.Sizeof(c.sl))]
	_ = same{}[(unsafe.Offsetof(g.SrcPathBits)-unsafe.Offsetof(c.src_path_bits))|(unsafe.Sizeof(g.SrcPathBits)-unsafe.Sizeof(c.src_path_bits))]
	_ = same{}[(unsafe.Offsetof(g.StaticRate)-unsafe.Offsetof(c.static_rate))|(unsafe.Sizeof(g.StaticRate)-unsafe.Sizeof(c.static_rate))]
	_ = same{}[(unsafe.Offsetof(g.IsGlobal)-unsafe.Offsetof(c.is_global))|(unsafe.Sizeof(g.IsGlobal)-unsafe.Sizeof(c.is_global))]
	_ = same{}[(unsafe.Offsetof(g.PortNum)-unsafe.Offsetof(c.port_num))|(unsafe.Sizeof(g.PortNum)-unsafe.Sizeof(c.port_num))]
}

func _(g QPCap, c C.struct_ibv_qp_cap) {
	_ = same{}[(unsafe.Offsetof(g.MaxSendWR)-unsafe.Offsetof(c.max_send_wr))|(unsafe.Sizeof(g.MaxSendWR)-unsafe.Sizeof(c.max_send_wr))]
	_ = same{}[(unsafe.Offsetof(g.MaxRecvWR)-unsafe.Offsetof(c.max_recv_wr))|(unsafe.Sizeof(g.MaxRecvWR)-unsafe.Sizeof(c.max_recv_wr))]
	_ = same{}[(unsafe.Offsetof(g.MaxSendSGE)-unsafe.Offsetof(c.max_send_sge))|(unsafe.Sizeof(g.MaxSendSGE)-unsafe.Sizeof(c.max_send_sge))]
	_ = same{}[(unsafe.Offsetof(g.MaxRecvSGE)-unsafe.Offsetof(c.max_recv_sge))|(unsafe.Sizeof(g.MaxRecvSGE)-unsafe.Sizeof(c.max_recv_sge))]
	_ = same{}[(unsafe.Offsetof(g.MaxInlineData)-unsafe.Offsetof(c.max_inline_data))|(unsafe.Sizeof(g.MaxInlineData)-unsafe.Sizeof(c.max_inline_data))]
}

func _(g QPAttr, c C.struct_ibv_qp_attr) {
	_ = same{}[(unsafe.Offsetof(g.State)-unsafe.Offsetof(c.qp_state))|(unsafe.Sizeof(g.State)-unsafe.Sizeof(c.qp_state))]
	_ = same{}[(unsafe.Offsetof(g.CurState)-unsafe.Offsetof(c.cur_qp_state))|(unsafe.Sizeof(g.CurState)-unsafe.Sizeof(c.cur_qp_state))]
	_ = same{}[(unsafe.Offsetof(g.PathMTU)-unsafe.Offsetof(c.path_mtu))|(unsafe.Sizeof(g.PathMTU)-unsafe.Sizeof(c.path_mtu))]
	_ = same{}[(unsafe.Offsetof(g.PathMigState)-unsafe.Offsetof(c.path_mig_state))|(unsafe.Sizeof(g.PathMigState)-unsafe.Sizeof(c.path_mig_state))]
	_ = same{}[(unsafe.Offsetof(g.QKey)-unsafe.Offsetof(c.qkey))|(unsafe.Sizeof(g.QKey)-unsafe.Sizeof(c.qkey))]
	_ = same{}[(unsafe.Offsetof(g.RQPSN)-unsafe.Offsetof(c.rq_psn))|(unsafe.Sizeof(g.RQPSN)-unsafe.Sizeof(c.rq_psn))]
	_ = same{}[(unsafe.Offsetof(g.SQPSN)-unsafe.Offsetof(c.sq_psn))|(unsafe.Sizeof(g.SQPSN)-unsafe.Sizeof(c.sq_psn))]
	_ = same{}[(unsafe.Offsetof(g.DestQPN)-unsafe.Offsetof(c.dest_qp_num))|(unsafe.Sizeof(g.DestQPN)-unsafe.Sizeof(c.dest_qp_num))]
	_ = same{}[(unsafe.Offsetof(g.AccessFlags)-unsafe.Offsetof(c.qp_access_flags))|(unsafe.Sizeof(g.AccessFlags)-unsafe.Sizeof(c.qp_access_flags))]
	_ = same{}[(unsafe.Offsetof(g.Cap)-unsafe.Offsetof(c.cap))|(unsafe.Sizeof(g.Cap)-unsafe.Sizeof(c.cap))]
	_ = same{}[(unsafe.Offsetof(g.AH)-unsafe.Offsetof(c.ah_attr))|(unsafe.Sizeof(g.AH)-unsafe.Sizeof(c.ah_attr))]
	_ = same{}[(unsafe.Offsetof(g.AltAH)-unsafe.Offsetof(c.alt_ah_attr))|(unsafe.Sizeof(g.AltAH)-unsafe.Sizeof(c.alt_ah_attr))]
	_ = same{}[(unsafe.Offsetof(g.PKeyIndex)-unsafe.Offsetof(c.pkey_index))|(unsafe.Sizeof(g.PKeyIndex)-unsafe.Sizeof(c.pkey_index))]
	_ = same{}[(unsafe.Offsetof(g.AltPKeyIndex)-unsafe.Offsetof(c.alt_pkey_index))|(unsafe.Sizeof(g.AltPKeyIndex)-unsafe.Sizeof(c.alt_pkey_index))]
	_ = same{}[(unsafe.Offsetof(g.EnSQDAsyncNotify)-unsafe.Offsetof(c.en_sqd_async_notify))|(unsafe.Sizeof(g.EnSQDAsyncNotify)-unsafe.Sizeof(c.en_sqd_async_notify))]
	_ = same{}[(unsafe.Offsetof(g.SQDraining)-unsafe.Offsetof(c.sq_draining))|(unsafe.Sizeof(g.SQDraining)-unsafe.Sizeof(c.sq_draining))]
	_ = same{}[(unsafe.Offsetof(g.MaxRdAtomic)-unsafe.Offsetof(c.max_rd_atomic))|(unsafe.Sizeof(g.MaxRdAtomic)-unsafe.Sizeof(c.max_rd_atomic))]
	_ = same{}[(unsafe.Offsetof(g.MaxDestRdAtomic)-unsafe.Offsetof(c.max_dest_rd_atomic))|(unsafe.Sizeof(g.MaxDestRdAtomic)-unsafe.Sizeof(c.max_dest_rd_atomic))]
	_ = same{}[(unsafe.Offsetof(g.MinRNRTimer)-unsafe.Offsetof(c.min_rnr_timer))|(unsafe.Sizeof(g.MinRNRTimer)-unsafe.Sizeof(c.min_rnr_timer))]
	_ = same{}[(unsafe.Offsetof(g.PortNum)-unsafe.Offsetof(c.port_num))|(unsafe.Sizeof(g.PortNum)-unsafe.Sizeof(c.port_num))]
	_ = same{}[(unsafe.Offsetof(g.Timeout)-unsafe.Offsetof(c.timeout))|(unsafe.Sizeof(g.Timeout)-unsafe.Sizeof(c.timeout))]
	_ = same{}[(unsafe.Offsetof(g.RetryCnt)-unsafe.Offsetof(c.retry_cnt))|(unsafe.Sizeof(g.RetryCnt)-unsafe.Sizeof(c.retry_cnt))]
	_ = same{}[(unsafe.Offsetof(g.RNRRetry)-unsafe.Offsetof(c.rnr_retry))|(unsafe.Sizeof(g.RNRRetry)-unsafe.Sizeof(c.rnr_retry))]
	_ = same{}[(unsafe.Offsetof(g.AltPortNum)-unsafe.Offsetof(c.alt_port_num))|(unsafe.Sizeof(g.AltPortNum)-unsafe.Sizeof(c.alt_port_num))]
	_ = same{}[(unsafe.Offsetof(g.AltTimeout)-unsafe.Offsetof(c.alt_timeout))|(unsafe.Sizeof(g.AltTimeout)-unsafe.Sizeof(c.alt_timeout))]
	_ = same{}[(unsafe.Offsetof(g.RateLimit)-unsafe.Offsetof(c.rate_limit))|(unsafe.Sizeof(g.RateLimit)-unsafe.Sizeof(c.rate_limit))]
}

func _(g SRQAttr, c C.struct_ibv_srq_attr) {
	_ = same{}[(unsafe.Offsetof(g.MaxWR)-unsafe.Offsetof(c.max_wr))|(unsafe.Sizeof(g.MaxWR)-unsafe.Sizeof(c.max_wr))]
	_ = same{}[(unsafe.Offsetof(g.MaxSGE)-unsafe.Offsetof(c.max_sge))|(unsafe.Sizeof(g.MaxSGE)-unsafe.Sizeof(c.max_sge))]
	_ = same{}[(unsafe.Offsetof(g.Limit)-unsafe.Offsetof(c.srq_limit))|(unsafe.Sizeof(g.Limit)-unsafe.Sizeof(c.srq_limit))]
}

func _(g EFAAttr, c C.struct_efadv_device_attr) {
	_ = same{}[(unsafe.Offsetof(g.CompMask)-unsafe.Offsetof(c.comp_mask))|(unsafe.Sizeof(g.CompMask)-unsafe.Sizeof(c.comp_mask))]
	_ = same{}[(unsafe.Offsetof(g.MaxSQWR)-unsafe.Offsetof(c.max_sq_wr))|(unsafe.Sizeof(g.MaxSQWR)-unsafe.Sizeof(c.max_sq_wr))]
	_ = same{}[(unsafe.Offsetof(g.MaxRQWR)-unsafe.Offsetof(c.max_rq_wr))|(unsafe.Sizeof(g.MaxRQWR)-unsafe.Sizeof(c.max_rq_wr))]
	_ = same{}[(unsafe.Offsetof(g.MaxSQSGE)-unsafe.Offsetof(c.max_sq_sge))|(unsafe.Sizeof(g.MaxSQSGE)-unsafe.Sizeof(c.max_sq_sge))]
	_ = same{}[(unsafe.Offsetof(g.MaxRQSGE)-unsafe.Offsetof(c.max_rq_sge))|(unsafe.Sizeof(g.MaxRQSGE)-unsafe.Sizeof(c.max_rq_sge))]
	_ = same{}[(unsafe.Offsetof(g.InlineBufSize)-unsafe.Offsetof(c.inline_buf_size))|(unsafe.Sizeof(g.InlineBufSize)-unsafe.Sizeof(c.inline_buf_size))]
	_ = same{}[(unsafe.Offsetof(g.Caps)-unsafe.Offsetof(c.device_caps))|(unsafe.Sizeof(g.Caps)-unsafe.Sizeof(c.device_caps))]
	_ = same{}[(unsafe.Offsetof(g.MaxRDMASize)-unsafe.Offsetof(c.max_rdma_size))|(unsafe.Sizeof(g.MaxRDMASize)-unsafe.Sizeof(c.max_rdma_size))]
}

func _(g AsyncEvent, c C.struct_ibv_async_event) {
	_ = same{}[unsafe.Offsetof(g.Element)-C.gv_async_element]
	_ = same{}[unsafe.Sizeof(g.Element)-unsafe.Sizeof(c.element)]
	_ = same{}[(unsafe.Offsetof(g.Type)-unsafe.Offsetof(c.event_type))|(unsafe.Sizeof(g.Type)-unsafe.Sizeof(c.event_type))]
}

// C's are at least as long: toC and toGo copy all of Go's.
const (
	_ = C.sizeof_struct_ibv_device_attr - unsafe.Sizeof(DeviceAttr{})
	_ = C.sizeof_struct_ibv_port_attr - unsafe.Sizeof(PortAttr{})
	_ = C.sizeof_struct_ibv_gid_entry - unsafe.Sizeof(GIDEntry{})
	_ = C.sizeof_struct_ibv_global_route - unsafe.Sizeof(GlobalRoute{})
	_ = C.sizeof_struct_ibv_ah_attr - unsafe.Sizeof(AHAttr{})
	_ = C.sizeof_struct_ibv_qp_cap - unsafe.Sizeof(QPCap{})
	_ = C.sizeof_struct_ibv_qp_attr - unsafe.Sizeof(QPAttr{})
	_ = C.sizeof_struct_ibv_srq_attr - unsafe.Sizeof(SRQAttr{})
	_ = C.sizeof_struct_efadv_device_attr - unsafe.Sizeof(EFAAttr{})
	_ = C.sizeof_struct_ibv_async_event - unsafe.Sizeof(AsyncEvent{})
)
