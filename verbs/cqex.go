package verbs

import (
	"fmt"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cgo"
)

// WCFields are the additional fields of completions in an extended completion queue (enum
// ibv_create_cq_wc_flags).
type WCFields uint64

const (
	// FieldsStandard are the fields of a plain queue.
	FieldsStandard WCFields = 1 << 63
	// FieldTimestamp is the device's clock at the completion.
	FieldTimestamp WCFields = 1 << 7 // IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
	// FieldWallClock is the time of day at the completion.
	FieldWallClock WCFields = 1 << 11 // IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
	// fieldSender is [experimental.FieldSender].
	fieldSender WCFields = cgo.FieldSender
)

func (f WCFields) String() string {
	s := "standard"
	if f&FieldTimestamp != 0 {
		s += "|timestamp"
	}
	if f&FieldWallClock != 0 {
		s += "|wall clock"
	}
	if f&fieldSender != 0 {
		s += "|sender"
	}
	if rest := f &^ (FieldsStandard | FieldTimestamp | FieldWallClock | fieldSender); rest != 0 {
		s += fmt.Sprintf("|%#x", uint64(rest))
	}
	return s
}

// WCEx is a completion of an extended queue.
type WCEx struct {
	WC
	timestamp, wallClock uint64
	sender               GID
}

// Timestamp is the device's clock when the work request completed, in ticks of
// [Features.ClockKHz]; 0 if the queue was not asked for [FieldTimestamp].
func (w *WCEx) Timestamp() uint64 { return w.timestamp }

// Time is when the work request completed; the zero time if the queue was not
// asked for [FieldWallClock].
func (w *WCEx) Time() time.Time {
	if w.wallClock == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(w.wallClock))
}

// from is [experimental.Sender].
func (w *WCEx) from() GID { return w.sender }

// PollEx is [CQ.Poll] with the fields that the queue was made for. Immediate,
// sender and times of a whole batch come in the same crossing into C.
func (c *CQ) PollEx(wcs []WCEx) (int, error) {
	if len(wcs) == 0 {
		return 0, nil
	}
	if c.fields == 0 {
		return 0, opError("poll", c.life.Label, ErrAttributes, "made without Fields")
	}
	if !c.life.Enter() {
		return 0, opError("poll", c.life.Label, ErrClosed)
	}
	if now := c.router.Load(); now != nil {
		return 0, c.leave(nil, now)
	}
	n, err := cgo.PollCQEx(c.cq, c.path, uint64(c.fields), rawWCExs(wcs))
	c.life.Exit()
	if err != nil || n == 0 && c.overrun.Load() {
		return 0, c.pollError(err)
	}
	for i := range wcs[:n] {
		if w := &wcs[i].WC; w.Status() != WCSuccess {
			c.failed([]WC{*w})
		}
	}
	return n, nil
}

// Moderate lets the device raise an event only after count completions, or
// once the oldest has waited for period, rounded to microseconds. 0 and 0 ends
// it. More than [Features].MaxModerate and MaxModeration is refused with
// [ErrAttributes].
func (c *CQ) Moderate(count int, period time.Duration) error {
	us := period.Microseconds()
	if count < 0 || count > 0xffff || us < 0 || us > 0xffff {
		return opError("moderate", c.life.Label, ErrAttributes, fmt.Sprintf("%d completions, %v: at most 65535, and as many microseconds", count, period))
	}
	return c.life.With("moderate", func() error {
		err := unsupported(cgo.ModerateCQ(c.cq, uint16(count), uint16(us)))
		if !isErrno(err, syscall.EINVAL) {
			return opError("moderate", c.life.Label, err)
		}
		detail := fmt.Sprintf("%d completions, %v", count, period)
		if f, ferr := c.dev.Features(); ferr == nil {
			detail += fmt.Sprintf("; the device allows %d and %v", f.MaxModerate, f.MaxModeration)
		}
		return opError("moderate", c.life.Label, class(ErrAttributes, err), detail)
	})
}

// Resize changes how many completions the queue holds; those in it stay. It
// may be called while others poll.
func (c *CQ) Resize(depth int) error {
	if depth <= 0 || depth > c.dev.attr.MaxCQE {
		return opError("resize", c.life.Label, ErrAttributes, "depth ", depth, ", the device allows ", c.dev.attr.MaxCQE)
	}
	c.routing.Lock()
	defer c.routing.Unlock()
	if rt := c.router.Load(); rt != nil && depth < rt.reserved {
		return opError("resize", c.life.Label, ErrInUse, "requesters may have ", rt.reserved, " completions in it")
	}
	return c.resize(depth)
}

func (c *CQ) resize(depth int) error {
	return c.life.With("resize", func() error {
		c.sizing.Lock()
		defer c.sizing.Unlock()
		n, err := cgo.ResizeCQ(c.cq, depth)
		if err != nil {
			return opError("resize", c.life.Label, unsupported(err), "depth ", depth)
		}
		c.depth = n
		return nil
	})
}
