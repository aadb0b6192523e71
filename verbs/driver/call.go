package driver

import (
	"time"

	"github.com/goverbs/goverbs/internal/hook"
	"github.com/goverbs/goverbs/verbs"
)

var (
	clock = hook.Clock.(func(c *verbs.Call, on, bound bool))
	limit = hook.Limit.(func(c *verbs.Call, until time.Duration))
	times = hook.Times.(func(*verbs.Call) (posted, over time.Duration))

	dispatchOwn = hook.DispatchOwn.(func(f verbs.Polled, d *verbs.Dispatcher, completed func(tag uint64, wc *verbs.WC)) bool)
)

// Clock says whether a call notes when its next lists are posted and over, for [Times]. The clock is
// read in the crossing into C that posts and polls, which takes a fraction of a crossing of its own,
// and less with bound: then the first time may be that of an earlier reading.
func Clock(c *verbs.Call, on, bound bool) { clock(c, on, bound) }

// Limit has the next lists of a call posted before a time, by the clock of package boottime, or not at
// all; 0 is no limit. [verbs.Requester.Go] fails at or after that time, with which [Times] returns it.
func Limit(c *verbs.Call, until time.Duration) { limit(c, until) }

// Times returns the times of the last list of a call by the clock of package boottime: one
// before it was posted, and one after its end, or 0 if the post did not find that at once.
func Times(c *verbs.Call) (posted, over time.Duration) { return times(c) }

// DispatchOwn is [verbs.Polled.Dispatch] under a lock that the dispatcher's handler takes: it calls completed, which
// must not take that lock, in place of the handler. It does so, and reports true, if all completions are the
// dispatcher's and of requests that succeeded. Otherwise it does nothing, and Dispatch must be called without the lock.
func DispatchOwn(f verbs.Polled, d *verbs.Dispatcher, completed func(tag uint64, wc *verbs.WC)) bool {
	return dispatchOwn(f, d, completed)
}
