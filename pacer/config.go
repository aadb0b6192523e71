package pacer

import (
	"time"

	"github.com/goverbs/goverbs/pacer/internal/shaper"
	"github.com/goverbs/goverbs/verbs"
)

// Config says what the limits are; its zero value is useful. Bytes are those on the wire, with
// headers.
type Config struct {
	// Threshold is how many response bytes may be outstanding, small ones included; 0 means four
	// slices, 65 KiB.
	Threshold int64
	// Reserve is the part of the threshold that only small requests use; 0 means an eighth of
	// it, at most 4 KiB.
	Reserve  int64
	Small    int     // a GET of up to so many bytes is small; 0 means 512
	Rate     float64 // bytes solicited in a second; 0 means no bound
	Burst    int64   // bytes that may be solicited at once; 0 means two slices
	Outbound float64 // bytes of PUTs in a second; 0 means no bound
	OutBurst int64   // bytes of PUTs that may be sent at once; 0 means 256 KiB

	MTU    int // bytes of data in a packet; 0 means the device's, or 4096
	Header int // bytes of headers of a packet; 0 means 66
	// Slice is how many bytes a sub-request has, rounded down to a multiple of the MTU; 0 means
	// 16 KiB, and a negative value that READs are not cut.
	Slice  int
	Units  int    // slicing units; 0 means 16
	Ord    int    // request packets that a unit may have outstanding; 0 means 128
	Device int    // GETs and atomics that the device may have outstanding; 0 means no limit
	Policy Policy // among the requests of one class
	// Overdue is the time after which a response does not count any more, if nothing of it or
	// of its queue pair came, and as long again for each 64 KiB that are
	// outstanding; 0 means 200 ms, a negative one never.
	Overdue time.Duration
	// MaxPasses is how often a flow is passed over before others wait for it; 0 means 16.
	MaxPasses int
	Classes   []Class // empty means one
	// Tune finds the threshold: Threshold is then where it begins. The delays of all flows
	// are taken together, so peers should be of about the same distance.
	Tune    bool
	TuneMax int64 // the threshold it may reach; 0 means 64 MiB
}

// Class is a traffic shaping class. It is an alias, and so one type with the shaper's.
type Class = struct {
	Name string // in statistics
	// Weight is its share among classes of the same priority; 0 means 1. Priority: a higher one
	// goes first.
	Weight, Priority int
	Cap              int64 // response bytes that it may have outstanding; 0 means no cap
}

// Policy is the way in which requests of one class are chosen.
type Policy = shaper.Policy

// FlowConfig says how a queue pair is paced.
type FlowConfig struct {
	Class    int // of its batches, unless they say otherwise
	Weight   int // for the policy Deficit; 0 means 1
	Priority int // for the policy Priority
	// Reissue keeps READs with pieces that failed, instead of completing them with the
	// error: [QP.Recover] has those pieces issued again. [verbs.QP.Done] is closed when
	// Recover is due. Other requests that the connection lost complete with their error
	// at once.
	Reissue bool
}

const (
	// RoundRobin takes them in turn, a request packet each. The one that went longest ago is the
	// next, so that a request that is passed over does not lose its turn.
	RoundRobin = shaper.RoundRobin
	// Priority takes the request of the flow with the highest priority.
	Priority = shaper.Priority
	// Deficit takes them in turn and lets each flow send bytes in proportion to its weight,
	// whatever the length of its requests.
	Deficit = shaper.Deficit
)

// defaults returns the default limits, with the MTU of the device's first active port.
func defaults(d *verbs.Device) Config {
	var c Config
	for n := 1; n <= d.Attr().Ports; n++ {
		if port, err := d.Port(uint8(n)); err == nil && port.State == verbs.PortActive {
			c.MTU = port.ActiveMTU.Bytes()
			break
		}
	}
	return c
}
