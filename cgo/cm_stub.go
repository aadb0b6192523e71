//go:build !linux || !cgo

package cgo

func CMCreateChannel() (CMChannel, int, error)            { return 0, -1, ErrUnsupported }
func CMDestroyChannel(CMChannel)                          {}
func CMTake(CMChannel, *CMEvent) (bool, error)            { return false, ErrUnsupported }
func CMCreateID(CMChannel, uint64, int) (CMID, error)     { return 0, ErrUnsupported }
func CMSetToken(CMID, uint64)                             {}
func CMDestroyID(CMID) error                              { return ErrUnsupported }
func CMContext(CMID) Context                              { return 0 }
func CMPort(CMID) uint8                                   { return 0 }
func CMAddrs(CMID) (local, remote SockAddr)               { return }
func CMBind(CMID, *SockAddr) error                        { return ErrUnsupported }
func CMResolveAddr(CMID, *SockAddr, *SockAddr, int) error { return ErrUnsupported }
func CMResolveRoute(CMID, int) error                      { return ErrUnsupported }
func CMListen(CMID, int) error                            { return ErrUnsupported }
func CMConnect(CMID, *CMParam) error                      { return ErrUnsupported }
func CMAccept(CMID, *CMParam) error                       { return ErrUnsupported }
func CMReject(CMID, []byte) error                         { return ErrUnsupported }
func CMDisconnect(CMID) error                             { return ErrUnsupported }
func CMInitQPAttr(CMID, uint32, *QPAttr) (uint32, error)  { return 0, ErrUnsupported }
func CMSetTOS(CMID, uint8) error                          { return ErrUnsupported }
func CMSetIPv6Only(CMID, bool) error                      { return ErrUnsupported }
func ContextTransport(Context) int32                      { return 0 }
func CMSetAckTimeout(CMID, uint8) error                   { return ErrUnsupported }
func CMJoin(CMID, *SockAddr, uint64) error                { return ErrUnsupported }
func CMLeave(CMID, *SockAddr) error                       { return ErrUnsupported }
func CMGetDevices() (CMDevices, []Context, error)         { return 0, nil, ErrUnsupported }
func CMFreeDevices(CMDevices)                             {}
func ContextName(Context) string                          { return "" }
func AttachMcast(QP, [16]byte, uint16) error              { return ErrUnsupported }
func DetachMcast(QP, [16]byte, uint16) error              { return ErrUnsupported }
func CMEventString(uint32) string                         { return "" }

func CMInit(CMID, QP, uint32, *QPAttr) (mask uint32, err error) { return 0, ErrUnsupported }

func CMConnected(CMID, QP, int, int, bool, *QPAttr) (mask, state uint32, err error) {
	return 0, 0, ErrUnsupported
}
