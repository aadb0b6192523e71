package shaper

import (
	"cmp"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/internal/operr"
)

// Policy is the way in which units are chosen within a class.
type Policy uint8

const (
	// RoundRobin takes them in turn, a request packet each. The one that went longest ago
	// is the next, so that a unit that is passed over does not lose its turn.
	RoundRobin Policy = iota
	// Priority takes the flow of the highest priority.
	Priority
	// Deficit takes them in turn and lets each send bytes in proportion to its weight,
	// whatever the length of its requests.
	Deficit
	policies
)

func (p Policy) String() string {
	return [...]string{"round robin", "priority", "deficit-weighted"}[p]
}

// Limits of a configuration.
const (
	MaxUnits   = 64
	MaxClasses = 16
	maxBytes   = 1 << 50 // of anything: sums stay far from overflowing
	MaxLength  = 1 << 40 // of a request
	maxHeader  = 1 << 16
)

// Class is a traffic shaping class.
type Class struct {
	Name string // in statistics
	// Weight is its share among classes of the same priority; 0 means 1.
	Weight int
	// Priority: a higher one goes first.
	Priority int
	// Cap is how many response bytes it may have outstanding; 0 means no cap.
	Cap int64
}

// Config says what the limits are. Bytes are those on the wire, with headers. Zero values are
// replaced by defaults.
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

// ErrConfig: a value that makes no sense.
var ErrConfig = operr.ErrConfig

// WithDefaults returns the configuration with its zero values replaced, or an error if it is
// invalid.
func (c Config) WithDefaults() (Config, error) {
	for _, v := range []int64{c.Threshold, c.Reserve, int64(c.Small), c.Burst, c.OutBurst, int64(c.MTU), int64(c.Header), int64(c.Units),
		int64(c.Ord), int64(c.Device), int64(c.MaxPasses), c.TuneMax} {
		if v < 0 || v > maxBytes {
			return c, fmt.Errorf("%w: %d", ErrConfig, v)
		}
	}
	if !(c.Rate >= 0 && c.Rate <= maxBytes && c.Outbound >= 0 && c.Outbound <= maxBytes) { // NaN is not
		return c, fmt.Errorf("%w: rate %v, outbound %v", ErrConfig, c.Rate, c.Outbound)
	}
	if c.MTU > MaxLength || c.Header > maxHeader {
		return c, fmt.Errorf("%w: packets of %d bytes with %d of headers", ErrConfig, c.MTU, c.Header)
	}
	c.MTU = cmp.Or(c.MTU, 4096)
	if c.Slice == 0 {
		c.Slice = 16 << 10
	}
	if c.Slice > 0 {
		c.Slice = max(min(c.Slice, MaxLength)/c.MTU, 1) * c.MTU
	}
	c.Header = cmp.Or(c.Header, 66)
	c.Small = cmp.Or(c.Small, 512)
	c.Units = cmp.Or(c.Units, 16)
	c.Ord = cmp.Or(c.Ord, 128)
	c.MaxPasses = cmp.Or(c.MaxPasses, 16)
	c.Overdue = cmp.Or(c.Overdue, 200*time.Millisecond)
	one := c.RspPktLen(max(c.Slice, c.MTU))
	c.Threshold = cmp.Or(c.Threshold, 4*one)
	c.TuneMax = cmp.Or(c.TuneMax, 64<<20)
	c.Reserve = cmp.Or(c.Reserve, min(c.Threshold/8, 4<<10))
	c.Burst = cmp.Or(c.Burst, 2*one)
	c.OutBurst = cmp.Or(c.OutBurst, 256<<10)
	if len(c.Classes) == 0 {
		c.Classes = []Class{{Name: "default"}}
	}
	switch {
	case c.Reserve > c.Threshold:
		return c, fmt.Errorf("%w: a reserve of %d in a threshold of %d", ErrConfig, c.Reserve, c.Threshold)
	case c.Units > MaxUnits:
		return c, fmt.Errorf("%w: %d units; at most %d", ErrConfig, c.Units, MaxUnits)
	case len(c.Classes) > MaxClasses:
		return c, fmt.Errorf("%w: %d classes; at most %d", ErrConfig, len(c.Classes), MaxClasses)
	case c.Policy >= policies:
		return c, fmt.Errorf("%w: policy %d", ErrConfig, uint8(c.Policy))
	}
	classes := make([]Class, len(c.Classes))
	copy(classes, c.Classes)
	for i := range classes {
		k := &classes[i]
		k.Weight = cmp.Or(k.Weight, 1)
		if k.Weight < 0 || k.Weight > 1<<20 || k.Cap < 0 || k.Cap > maxBytes {
			return c, fmt.Errorf("%w: class %q", ErrConfig, k.Name)
		}
	}
	c.Classes = classes
	if c.Overdue > 24*time.Hour {
		return c, fmt.Errorf("%w: overdue after %v", ErrConfig, c.Overdue)
	}
	return c, nil
}

// RspPktLen returns the length on the wire of the response to a GET of n bytes.
func (c *Config) RspPktLen(n int) int64 {
	packets := max((n+c.MTU-1)/c.MTU, 1)
	return int64(n) + int64(packets)*int64(c.Header)
}
