package rdmacm

import (
	"fmt"

	"github.com/goverbs/goverbs/cgo"
)

// event is enum rdma_cm_event_type.
type event uint32

const (
	eventAddrResolved event = iota
	eventAddrError
	eventRouteResolved
	eventRouteError
	eventConnectRequest
	eventConnectResponse
	eventConnectError
	eventUnreachable
	eventRejected
	eventEstablished
	eventDisconnected
	eventDeviceRemoval
	eventMulticastJoin
	eventMulticastError
	eventAddrChange
	eventTimewaitExit
)

func (e event) String() string {
	if s := cgo.CMEventString(uint32(e)); s != "" {
		return s
	}
	return fmt.Sprintf("event %d", uint32(e))
}
