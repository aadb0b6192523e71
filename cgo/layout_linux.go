//go:build cgo

package cgo

/*
#include <stddef.h>
#include "shim.h"

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

// same has one element: an index other than the constant 0 does not compile.
type same = [1]struct{}

// toC makes C's own structure, as long as the header has it, of what Go knows
// of it: its beginning. The rest is zero.
func toC[T, G any](g *G) *T {
	c := new(aligned[T])
	*(*G)(unsafe.Pointer(&c.v)) = *g
	return &c.v
}

// aligned has what C aligns to 8 bytes for a union in it, which to Go is bytes.
type aligned[T any] struct {
	_ [0]uint64
	v T
}

// toGo copies what Go knows of a structure of C.
func toGo[T, G any](c *T, g *G) { *g = *(*G)(unsafe.Pointer(c)) }

// Elements of the chains and arrays of the data path, which both languages
// index in place. Their size is part of the library's binary interface: it
// takes them without a length.

func _() {
	_ = same{}[unsafe.Sizeof(SGE{})-C.sizeof_struct_ibv_sge]
	_ = same{}[unsafe.Sizeof(SendWR{})-C.sizeof_struct_ibv_send_wr]
	_ = same{}[unsafe.Sizeof(RecvWR{})-C.sizeof_struct_ibv_recv_wr]
	_ = same{}[unsafe.Sizeof(WC{})-C.sizeof_struct_ibv_wc]
	_ = same{}[unsafe.Sizeof(WCEx{})-C.sizeof_struct_gv_wc_ex]
	_ = same{}[unsafe.Sizeof(Posting{})-C.sizeof_struct_gv_posting]
}

func _(g SGE, c C.struct_ibv_sge) {
	_ = same{}[(unsafe.Offsetof(g.Addr)-unsafe.Offsetof(c.addr))|(unsafe.Sizeof(g.Addr)-unsafe.Sizeof(c.addr))]
	_ = same{}[(unsafe.Offsetof(g.Length)-unsafe.Offsetof(c.length))|(unsafe.Sizeof(g.Length)-unsafe.Sizeof(c.length))]
	_ = same{}[(unsafe.Offsetof(g.LKey)-unsafe.Offsetof(c.lkey))|(unsafe.Sizeof(g.LKey)-unsafe.Sizeof(c.lkey))]
}

func _(g RecvWR, c C.struct_ibv_recv_wr) {
	_ = same{}[(unsafe.Offsetof(g.ID)-unsafe.Offsetof(c.wr_id))|(unsafe.Sizeof(g.ID)-unsafe.Sizeof(c.wr_id))]
	_ = same{}[(unsafe.Offsetof(g.Next)-unsafe.Offsetof(c.next))|(unsafe.Sizeof(g.Next)-unsafe.Sizeof(c.next))]
	_ = same{}[(unsafe.Offsetof(g.SGList)-unsafe.Offsetof(c.sg_list))|(unsafe.Sizeof(g.SGList)-unsafe.Sizeof(c.sg_list))]
	_ = same{}[(unsafe.Offsetof(g.NumSGE)-unsafe.Offsetof(c.num_sge))|(unsafe.Sizeof(g.NumSGE)-unsafe.Sizeof(c.num_sge))]
}

func _(g SendWR, c C.struct_ibv_send_wr) {
	_ = same{}[(unsafe.Offsetof(g.ID)-unsafe.Offsetof(c.wr_id))|(unsafe.Sizeof(g.ID)-unsafe.Sizeof(c.wr_id))]
	_ = same{}[(unsafe.Offsetof(g.Next)-unsafe.Offsetof(c.next))|(unsafe.Sizeof(g.Next)-unsafe.Sizeof(c.next))]
	_ = same{}[(unsafe.Offsetof(g.SGList)-unsafe.Offsetof(c.sg_list))|(unsafe.Sizeof(g.SGList)-unsafe.Sizeof(c.sg_list))]
	_ = same{}[(unsafe.Offsetof(g.NumSGE)-unsafe.Offsetof(c.num_sge))|(unsafe.Sizeof(g.NumSGE)-unsafe.Sizeof(c.num_sge))]
	_ = same{}[(unsafe.Offsetof(g.Opcode)-unsafe.Offsetof(c.opcode))|(unsafe.Sizeof(g.Opcode)-unsafe.Sizeof(c.opcode))]
	_ = same{}[(unsafe.Offsetof(g.Flags)-unsafe.Offsetof(c.send_flags))|(unsafe.Sizeof(g.Flags)-unsafe.Sizeof(c.send_flags))]

	_ = same{}[unsafe.Offsetof(g.ImmData)-C.gv_swr_imm]
	_ = same{}[unsafe.Offsetof(g.op)-C.gv_swr_raddr]
	_ = same{}[unsafe.Offsetof(g.op)+8-C.gv_swr_rkey]
	_ = same{}[unsafe.Offsetof(g.op)+8-C.gv_swr_cmp]
	_ = same{}[unsafe.Offsetof(g.op)+16-C.gv_swr_swap]
	_ = same{}[unsafe.Offsetof(g.op)+24-C.gv_swr_arkey]
	_ = same{}[unsafe.Offsetof(g.op)-C.gv_swr_ah]
	_ = same{}[unsafe.Offsetof(g.op)+8-C.gv_swr_qpn]
	_ = same{}[unsafe.Offsetof(g.op)+12-C.gv_swr_qkey]
	_ = same{}[unsafe.Offsetof(g.ImmData)-C.gv_swr_inv]
	_ = same{}[unsafe.Offsetof(g.tail)-C.gv_swr_mw]
	_ = same{}[unsafe.Offsetof(g.tail)+8-C.gv_swr_mwrkey]
	_ = same{}[unsafe.Offsetof(g.tail)+16-C.gv_swr_mwmr]
	_ = same{}[unsafe.Offsetof(g.tail)+40-C.gv_swr_mwacc]
}

func _(c C.struct_gv_dest) {
	_ = same{}[unsafe.Offsetof(c.dc_key)-16]
	_ = same{}[unsafe.Offsetof(c.stream)-24]
}

func _(g WC, c C.struct_ibv_wc) {
	_ = same{}[(unsafe.Offsetof(g.ID)-unsafe.Offsetof(c.wr_id))|(unsafe.Sizeof(g.ID)-unsafe.Sizeof(c.wr_id))]
	_ = same{}[(unsafe.Offsetof(g.Status)-unsafe.Offsetof(c.status))|(unsafe.Sizeof(g.Status)-unsafe.Sizeof(c.status))]
	_ = same{}[(unsafe.Offsetof(g.Opcode)-unsafe.Offsetof(c.opcode))|(unsafe.Sizeof(g.Opcode)-unsafe.Sizeof(c.opcode))]
	_ = same{}[(unsafe.Offsetof(g.VendorErr)-unsafe.Offsetof(c.vendor_err))|(unsafe.Sizeof(g.VendorErr)-unsafe.Sizeof(c.vendor_err))]
	_ = same{}[(unsafe.Offsetof(g.ByteLen)-unsafe.Offsetof(c.byte_len))|(unsafe.Sizeof(g.ByteLen)-unsafe.Sizeof(c.byte_len))]
	_ = same{}[(unsafe.Offsetof(g.QPNum)-unsafe.Offsetof(c.qp_num))|(unsafe.Sizeof(g.QPNum)-unsafe.Sizeof(c.qp_num))]
	_ = same{}[(unsafe.Offsetof(g.SrcQP)-unsafe.Offsetof(c.src_qp))|(unsafe.Sizeof(g.SrcQP)-unsafe.Sizeof(c.src_qp))]
	_ = same{}[(unsafe.Offsetof(g.Flags)-unsafe.Offsetof(c.wc_flags))|(unsafe.Sizeof(g.Flags)-unsafe.Sizeof(c.wc_flags))]
	_ = same{}[(unsafe.Offsetof(g.PKeyIndex)-unsafe.Offsetof(c.pkey_index))|(unsafe.Sizeof(g.PKeyIndex)-unsafe.Sizeof(c.pkey_index))]
	_ = same{}[(unsafe.Offsetof(g.SLID)-unsafe.Offsetof(c.slid))|(unsafe.Sizeof(g.SLID)-unsafe.Sizeof(c.slid))]
	_ = same{}[(unsafe.Offsetof(g.SL)-unsafe.Offsetof(c.sl))|(unsafe.Sizeof(g.SL)-unsafe.Sizeof(c.sl))]
	_ = same{}[(unsafe.Offsetof(g.DLIDPathBits)-unsafe.Offsetof(c.dlid_path_bits))|(unsafe.Sizeof(g.DLIDPathBits)-unsafe.Sizeof(c.dlid_path_bits))]
	_ = same{}[unsafe.Offsetof(g.ImmData)-C.gv_wc_imm]
}

func _(g WCEx, c C.struct_gv_wc_ex) {
	_ = same{}[(unsafe.Offsetof(g.WC)-unsafe.Offsetof(c.wc))|(unsafe.Sizeof(g.WC)-unsafe.Sizeof(c.wc))]
	_ = same{}[(unsafe.Offsetof(g.Timestamp)-unsafe.Offsetof(c.timestamp))|(unsafe.Sizeof(g.Timestamp)-unsafe.Sizeof(c.timestamp))]
	_ = same{}[(unsafe.Offsetof(g.WallClock)-unsafe.Offsetof(c.wall_clock))|(unsafe.Sizeof(g.WallClock)-unsafe.Sizeof(c.wall_clock))]
	_ = same{}[(unsafe.Offsetof(g.Sender)-unsafe.Offsetof(c.sender))|(unsafe.Sizeof(g.Sender)-unsafe.Sizeof(c.sender))]
}

func _(g Times, c C.struct_gv_times) {
	_ = same{}[(unsafe.Offsetof(g.Posted)-unsafe.Offsetof(c.posted))|(unsafe.Sizeof(g.Posted)-unsafe.Sizeof(c.posted))]
	_ = same{}[(unsafe.Offsetof(g.Over)-unsafe.Offsetof(c.over))|(unsafe.Sizeof(g.Over)-unsafe.Sizeof(c.over))]
	_ = same{}[(unsafe.Offsetof(g.Until)-unsafe.Offsetof(c.until))|(unsafe.Sizeof(g.Until)-unsafe.Sizeof(c.until))]
	_ = same{}[(unsafe.Offsetof(g.Bound)-unsafe.Offsetof(c.bound))|(unsafe.Sizeof(g.Bound)-unsafe.Sizeof(c.bound))]
	_ = same{}[(unsafe.Offsetof(g.Ends)-unsafe.Offsetof(c.ends))|(unsafe.Sizeof(g.Ends)-unsafe.Sizeof(c.ends))]
	_ = same{}[unsafe.Sizeof(g)-unsafe.Sizeof(c)]
}

func _(g Posting, c C.struct_gv_posting) {
	_ = same{}[(unsafe.Offsetof(g.queue)-unsafe.Offsetof(c.queue))|(unsafe.Sizeof(g.queue)-unsafe.Sizeof(c.queue))]
	_ = same{}[(unsafe.Offsetof(g.how)-unsafe.Offsetof(c.how))|(unsafe.Sizeof(g.how)-unsafe.Sizeof(c.how))]
	_ = same{}[(unsafe.Offsetof(g.wr)-unsafe.Offsetof(c.wr))|(unsafe.Sizeof(g.wr)-unsafe.Sizeof(c.wr))]
	_ = same{}[(unsafe.Offsetof(g.n)-unsafe.Offsetof(c.n))|(unsafe.Sizeof(g.n)-unsafe.Sizeof(c.n))]
	_ = same{}[(unsafe.Offsetof(g.kind)-unsafe.Offsetof(c.kind))|(unsafe.Sizeof(g.kind)-unsafe.Sizeof(c.kind))]
	_ = same{}[(unsafe.Offsetof(g.err)-unsafe.Offsetof(c.err))|(unsafe.Sizeof(g.err)-unsafe.Sizeof(c.err))]
	_ = same{}[(unsafe.Offsetof(g.accepted)-unsafe.Offsetof(c.accepted))|(unsafe.Sizeof(g.accepted)-unsafe.Sizeof(c.accepted))]
	_ = same{}[sends-C.GV_SENDS]
	_ = same{}[recvs-C.GV_RECVS]
	_ = same{}[sharedRecvs-C.GV_SHARED_RECVS]
}
