package shaper

import (
	"cmp"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/internal/operr"
)

// Policy is the way in which units are chosen within a class. Package pacer says more.
type Policy uint8

const (
	RoundRobin Policy = iota
	Priority
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

// Class and Config are those of package pacer, which says what the fields are.
type Class = struct {
	Name             string
	Weight, Priority int
	Cap              int64
}

type Config struct {
	Threshold int64
	Reserve   int64
	Small     int
	Rate      float64
	Burst     int64
	Outbound  float64
	OutBurst  int64
	MTU       int
	Header    int
	Slice     int
	Units     int
	Ord       int
	Device    int
	Policy    Policy
	Overdue   time.Duration
	MaxPasses int
	Classes   []Class
	Tune      bool
	TuneMax   int64
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
