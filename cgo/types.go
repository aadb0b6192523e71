package cgo

// Handles are addresses of C objects owned by libibverbs. The zero value is no
// object.
type (
	Context     uintptr // struct ibv_context *
	PD          uintptr // struct ibv_pd *
	MR          uintptr // struct ibv_mr *
	CompChannel uintptr // struct ibv_comp_channel *
	CQ          uintptr // struct ibv_cq *
	QP          uintptr // struct ibv_qp *
	AH          uintptr // struct ibv_ah *
	SRQ         uintptr // struct ibv_srq *
	MW          uintptr // struct ibv_mw *
	TD          uintptr // struct ibv_td *
	DM          uintptr // struct ibv_dm *
	Flow        uintptr // struct ibv_flow *
)

// PostPath is how a queue pair posts: by ibv_post_send, or, any other value, by
// ibv_wr_*, with its requests counted (struct gv_sq of credits.h).
type PostPath uintptr

const PostPlain PostPath = 0

// Yield in a number of spins has the CPU given up before each. That ends early,
// and is left out for a while, beside a program that computes.
const Yield = 1 << 31

// PollPath is how a completion queue is polled: one of these, or the result of
// [NewPollPath].
type PollPath uintptr

const (
	PollPlain    PollPath = 0
	PollExtended PollPath = 1
	PollRXE      PollPath = 2 // as an extended queue of rxe
)

// Notify is for which completions an event is requested, and how.
type Notify uint32

const (
	NotifySolicited Notify = 1 << 0 // for solicited ones and failures alone
	NotifyRXE       Notify = 1 << 1 // of rxe: by a shorter way than its provider's
)

// DeviceInfo is what is known of a device before it is opened.
type DeviceInfo struct {
	Name      string // kernel name, such as "mlx5_0" or "rxe0"
	GUID      uint64 // node GUID, host byte order
	NodeType  int32  // enum ibv_node_type
	Transport int32  // enum ibv_transport_type
}

// DeviceAttr has the layout of struct ibv_device_attr.
type DeviceAttr struct {
	FWVer               [64]byte
	NodeGUID            uint64 // big endian
	SysImageGUID        uint64 // big endian
	MaxMRSize           uint64
	PageSizeCap         uint64
	VendorID            uint32
	VendorPartID        uint32
	HWVer               uint32
	MaxQP               int32
	MaxQPWR             int32
	DeviceCapFlags      uint32
	MaxSGE              int32
	MaxSGERead          int32
	MaxCQ               int32
	MaxCQE              int32
	MaxMR               int32
	MaxPD               int32
	MaxQPRdAtom         int32
	MaxEERdAtom         int32
	MaxResRdAtom        int32
	MaxQPInitRdAtom     int32
	MaxEEInitRdAtom     int32
	AtomicCap           int32
	MaxEE               int32
	MaxRDD              int32
	MaxMW               int32
	MaxRawIPv6QP        int32
	MaxRawEthyQP        int32
	MaxMcastGrp         int32
	MaxMcastQPAttach    int32
	MaxTotalMcastAttach int32
	MaxAH               int32
	MaxFMR              int32
	MaxMapPerFMR        int32
	MaxSRQ              int32
	MaxSRQWR            int32
	MaxSRQSGE           int32
	MaxPKeys            uint16
	LocalCAAckDelay     uint8
	PhysPortCnt         uint8
}

// PortAttr has the layout of struct ibv_port_attr.
type PortAttr struct {
	State         int32
	MaxMTU        int32
	ActiveMTU     int32
	GIDTableLen   int32
	PortCapFlags  uint32
	MaxMsgSize    uint32
	BadPKeyCntr   uint32
	QKeyViolCntr  uint32
	PKeyTableLen  uint16
	LID           uint16
	SMLID         uint16
	LMC           uint8
	MaxVLNum      uint8
	SMSL          uint8
	SubnetTimeout uint8
	InitTypeReply uint8
	ActiveWidth   uint8
	ActiveSpeed   uint8
	PhysState     uint8
	LinkLayer     uint8
	Flags         uint8
	PortCapFlags2 uint16
	_             [2]byte
}

// GIDEntry has the layout of struct ibv_gid_entry.
type GIDEntry struct {
	GID     [16]byte
	Index   uint32
	Port    uint32
	Type    uint32
	IfIndex uint32
}

// FieldSender requests a completion queue of EFA that has the GID of a received
// datagram's sender (GV_FIELD_SENDER of extended.h).
const FieldSender = 1 << 62

// GlobalRoute has the layout of struct ibv_global_route.
type GlobalRoute struct {
	_            [0]uint64 // C has the GID as words, and so aligns what it is in
	DGID         [16]byte
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	_            uint8
}

// GRHSize is the size of struct ibv_grh.
const GRHSize = 40

// AHAttr has the layout of struct ibv_ah_attr.
type AHAttr struct {
	GRH         GlobalRoute
	DLID        uint16
	SL          uint8
	SrcPathBits uint8
	StaticRate  uint8
	IsGlobal    uint8
	PortNum     uint8
	_           uint8
}

// QPCap has the layout of struct ibv_qp_cap.
type QPCap struct {
	MaxSendWR     uint32
	MaxRecvWR     uint32
	MaxSendSGE    uint32
	MaxRecvSGE    uint32
	MaxInlineData uint32
}

// QPAttr has the layout of struct ibv_qp_attr.
type QPAttr struct {
	_                [0]uint64 // as C aligns it
	State            uint32
	CurState         uint32
	PathMTU          uint32
	PathMigState     uint32
	QKey             uint32
	RQPSN            uint32
	SQPSN            uint32
	DestQPN          uint32
	AccessFlags      uint32
	Cap              QPCap
	AH               AHAttr
	AltAH            AHAttr
	PKeyIndex        uint16
	AltPKeyIndex     uint16
	EnSQDAsyncNotify uint8
	SQDraining       uint8
	MaxRdAtomic      uint8
	MaxDestRdAtomic  uint8
	MinRNRTimer      uint8
	PortNum          uint8
	Timeout          uint8
	RetryCnt         uint8
	RNRRetry         uint8
	AltPortNum       uint8
	AltTimeout       uint8
	_                uint8
	RateLimit        uint32
	_                [4]byte
}

// QPInit says how to create a queue pair.
type QPInit struct {
	Type   uint32 // enum ibv_qp_type
	SendCQ CQ
	RecvCQ CQ
	SRQ    SRQ
	Cap    QPCap // on return: what the device granted
	SigAll bool

	SoftRoCE bool     // a device of rxe
	SendPath PollPath // of SendCQ, which is to credit the sends that complete
	Extended bool     // to be posted to by ibv_wr_*
	SendOps  uint64   // enum ibv_qp_create_send_ops_flags, if Extended

	Driver     Driver
	DCKey      uint64 // of a DCT: its access key
	LogStreams uint8  // of a DCI: logarithm of its streams; 0: none
	LogErrored uint8  // of a DCI with streams: logarithm of those that may be in error
	RawWQE     bool   // mlx5: to post raw work queue entries too
}

// Driver is a kind of queue pair that only one provider has.
type Driver int

const (
	NoDriver Driver = iota
	Mlx5QP          // an ordinary one, made by mlx5dv
	Mlx5DCI
	Mlx5DCT
	EFASRD
)

// SRQAttr has the layout of struct ibv_srq_attr.
type SRQAttr struct {
	MaxWR  uint32
	MaxSGE uint32
	Limit  uint32
}

// DeviceAttrEx is what the extended query returns beside [DeviceAttr]; a device
// without it has zeroes.
type DeviceAttrEx struct {
	ODP           uint64 // enum ibv_odp_general_caps
	ODPRC         uint32 // enum ibv_odp_transport_cap_bits
	ODPUD         uint32
	TimestampMask uint64
	ClockKHz      uint64
	CapFlags      uint64
	PacingMin     uint32 // kbit/s
	PacingMax     uint32
	PacingQPTypes uint32
	ModCount      uint16 // completion moderation
	ModPeriod     uint16 // microseconds
	MaxDMSize     uint64 // device memory, bytes
}

// Mlx5Attr is what mlx5dv_query_device returns.
type Mlx5Attr struct {
	Flags       uint64
	DCODPCaps   uint32
	LogStreams  uint8
	LogErrored  uint8
	MaxWRMemcpy uint64
}

// EFAAttr has the layout of struct efadv_device_attr.
type EFAAttr struct {
	CompMask      uint64
	MaxSQWR       uint32
	MaxRQWR       uint32
	MaxSQSGE      uint16
	MaxRQSGE      uint16
	InlineBufSize uint16
	_             [2]byte
	Caps          uint32
	MaxRDMASize   uint32
}

// FlowAttr is which packets a queue pair is to receive. Numbers are in host byte
// order; of a value counts what its mask has.
type FlowAttr struct {
	Type     uint32 // enum ibv_flow_attr_type
	Priority uint16
	Port     uint8
	Flags    uint32 // enum ibv_flow_flags

	Ethernet                 bool // headers to look at
	DstMAC, DstMACMask       [6]byte
	SrcMAC, SrcMACMask       [6]byte
	EtherType, EtherTypeMask uint16
	VLAN, VLANMask           uint16 // priority 3 bits, CFI 1, number 12

	IPVersion        int // 0: any, 4, 6; of IPv4 the first 4 bytes count
	SrcIP, SrcIPMask [16]byte
	DstIP, DstIPMask [16]byte

	Transport            uint32 // enum ibv_flow_spec_type, or 0
	SrcPort, SrcPortMask uint16
	DstPort, DstPortMask uint16
}

// AsyncEvent has the layout of struct ibv_async_event. Element is the address
// of the object that the event concerns; for port events its first four bytes
// are the port number.
type AsyncEvent struct {
	Element uint64
	Type    uint32 // enum ibv_event_type
	_       [4]byte
}
