//go:build !linux || !cgo

package cgo

// Supported reports whether this build can reach rdma-core.
const Supported = false

func PostSend(QP, PostPath, *SendChain, int) (int, error)         { return 0, ErrUnsupported }
func PostSRQRecv(SRQ, *RecvChain, int) (int, error)               { return 0, ErrUnsupported }
func PollCQEx(CQ, PollPath, uint64, []WCEx) (int, error)          { return 0, ErrUnsupported }
func PostAll([]Posting)                                           {}
func PostRecv(QP, *RecvChain, int) (int, error)                   { return 0, ErrUnsupported }
func PollCQ(CQ, PollPath, []WC, uint32) (int, error)              { return 0, ErrUnsupported }
func NewSendChain(int, int, int) (*SendChain, error)              { return nil, ErrUnsupported }
func NewRecvChain(int, int) (*RecvChain, error)                   { return nil, ErrUnsupported }
func (c *SendChain) Free()                                        {}
func (c *RecvChain) Free()                                        {}
func Devices() ([]DeviceInfo, error)                              { return nil, ErrUnsupported }
func SysfsPath() string                                           { return "/sys" }
func OpenDevice(string) (Context, error)                          { return 0, ErrUnsupported }
func CloseDevice(Context) error                                   { return ErrUnsupported }
func AsyncFD(Context) int                                         { return -1 }
func NumCompVectors(Context) int                                  { return 0 }
func QueryDevice(Context, *DeviceAttr) error                      { return ErrUnsupported }
func QueryPort(Context, uint8, *PortAttr) error                   { return ErrUnsupported }
func QueryGIDTable(Context, int) ([]GIDEntry, error)              { return nil, ErrUnsupported }
func AllocPD(Context) (PD, error)                                 { return 0, ErrUnsupported }
func DeallocPD(PD) error                                          { return ErrUnsupported }
func DeregMR(MR) error                                            { return ErrUnsupported }
func DestroyCompChannel(CompChannel) error                        { return ErrUnsupported }
func CreateCQ(Context, int, CompChannel, int) (CQ, int, error)    { return 0, 0, ErrUnsupported }
func DestroyCQ(CQ) error                                          { return ErrUnsupported }
func CreateQP(Context, PD, *QPInit) (QP, uint32, PostPath, error) { return 0, 0, 0, ErrUnsupported }
func NewPollPath(PollPath) (PollPath, error)                      { return 0, ErrUnsupported }
func FreePollPath(PollPath)                                       {}
func FreePostPath(PostPath)                                       {}
func ResetPostPath(PostPath)                                      {}
func Outstanding(PostPath) int                                    { return 0 }
func OutstandingIn(PollPath) int                                  { return 0 }
func Callable(PostPath) uint64                                    { return 0 }
func OpOf(uint32) uint64                                          { return 0 }
func FlushOffset() uintptr                                        { return 0 }
func QPNum(QP) uint32                                             { return 0 }
func QueryDeviceEx(Context, *DeviceAttrEx) error                  { return ErrUnsupported }
func QueryClock(Context) (uint64, error)                          { return 0, ErrUnsupported }
func ModerateCQ(CQ, uint16, uint16) error                         { return ErrUnsupported }
func ResizeCQ(CQ, int) (int, error)                               { return 0, ErrUnsupported }
func RateLimitQP(QP, uint32, uint32, uint16) error                { return ErrUnsupported }
func AllocTD(Context) (TD, error)                                 { return 0, ErrUnsupported }
func DeallocTD(TD) error                                          { return ErrUnsupported }
func AllocParentDomain(Context, PD, TD) (PD, error)               { return 0, ErrUnsupported }
func CreateSRQ(PD, *SRQAttr) (SRQ, error)                         { return 0, ErrUnsupported }
func ModifySRQ(SRQ, *SRQAttr, uint32) error                       { return ErrUnsupported }
func QuerySRQ(SRQ, *SRQAttr) error                                { return ErrUnsupported }
func DestroySRQ(SRQ) error                                        { return ErrUnsupported }
func Mlx5Supported(Context) bool                                  { return false }
func Mlx5Query(Context, *Mlx5Attr) error                          { return ErrUnsupported }
func Mlx5StreamReset(QP, uint16) error                            { return ErrUnsupported }
func Mlx5AV(AH) (av [48]byte, err error)                          { return av, ErrUnsupported }
func EFAQuery(Context, *EFAAttr) error                            { return ErrUnsupported }
func AllocMW(PD, uint32) (MW, uint32, error)                      { return 0, 0, ErrUnsupported }
func DeallocMW(MW) error                                          { return ErrUnsupported }
func AdviseMR(PD, uint32, uint32, SGE) error                      { return ErrUnsupported }

func Mlx5SetUDPSourcePort(QP, uint16) error           { return ErrUnsupported }
func Mlx5SetLAGPort(QP, uint8) error                  { return ErrUnsupported }
func QueryECE(QP) (vendor, options uint32, err error) { return 0, 0, ErrUnsupported }
func SetECE(QP, uint32, uint32) error                 { return ErrUnsupported }
func Mlx5LAGPort(QP) (port, active uint8, err error)  { return 0, 0, ErrUnsupported }

func AllocDM(Context, int, int) (DM, error) { return 0, ErrUnsupported }
func FreeDM(DM) error                       { return ErrUnsupported }
func CopyToDM(DM, uint64, []byte) error     { return ErrUnsupported }
func CopyFromDM([]byte, DM, uint64) error   { return ErrUnsupported }
func AllocNullMR(PD) (MR, uint32, error)    { return 0, 0, ErrUnsupported }

func RegDM(PD, DM, uint64, int, uint32) (mr MR, lkey, rkey uint32, err error) {
	return 0, 0, 0, ErrUnsupported
}

func CreateFlow(QP, *FlowAttr) (Flow, error) { return 0, ErrUnsupported }
func DestroyFlow(Flow) error                 { return ErrUnsupported }

func EFAAHNumber(AH) (uint16, error) { return 0, ErrUnsupported }

func CreateCQEx(Context, int, CompChannel, int, uint64, uint32) (CQ, int, error) {
	return 0, 0, ErrUnsupported
}

func BindMW(QP, MW, uint64, uint32, MR, uint64, uint64, uint32) (uint32, error) {
	return 0, ErrUnsupported
}

func RegDMABuf(PD, uint64, int, uint64, int, uint32) (mr MR, lkey, rkey uint32, err error) {
	return 0, 0, 0, ErrUnsupported
}

func ReregMR(MR, uint32, PD, uintptr, int, uint32) (lkey, rkey uint32, code int, err error) {
	return 0, 0, 0, ErrUnsupported
}

func ModifyQP(QP, *QPAttr, uint32) error                              { return ErrUnsupported }
func ModifySteps(QP, []QPAttr, []uint32) (int, error)                 { return 0, ErrUnsupported }
func QueryQP(QP, *QPAttr, uint32) error                               { return ErrUnsupported }
func DestroyQP(QP) error                                              { return ErrUnsupported }
func CreateAH(PD, *AHAttr) (AH, error)                                { return 0, ErrUnsupported }
func InitAHFromWC(Context, uint8, *WC, *[GRHSize]byte, *AHAttr) error { return ErrUnsupported }
func DestroyAH(AH) error                                              { return ErrUnsupported }
func WCStatusString(uint32) string                                    { return "" }
func EventTypeString(uint32) string                                   { return "" }
func CreateCompChannel(Context) (CompChannel, int, error)             { return 0, -1, ErrUnsupported }
func TakeAsyncEvent(Context, *AsyncEvent) (bool, error)               { return false, ErrUnsupported }
func AckAsyncEvent(*AsyncEvent)                                       {}
func Boottime() int64                                                 { return 0 }

func RegMR(PD, uintptr, int, uint64, uint32) (mr MR, lkey, rkey uint32, err error) {
	return 0, 0, 0, ErrUnsupported
}

func PostPoll(QP, PostPath, *SendChain, int, CQ, PollPath, []WC, uint32, *Times) (accepted, got int, err error) {
	return 0, 0, ErrUnsupported
}

func WaitStep(CompChannel, CQ, PollPath, *bool, Notify, []WC) (int, error) {
	return 0, ErrUnsupported
}
