package driver

import (
	"time"

	"github.com/goverbs/goverbs/internal/hook"
	"github.com/goverbs/goverbs/verbs"
)

var (
	clock = hook.Clock.(func(*verbs.Call))
	times = hook.Times.(func(*verbs.Call) (posted, over time.Duration))
)

// Clock has a call note when its lists are posted and over, for [Times]. The clock is read in the
// crossing into C that posts and polls, which takes a fraction of a crossing of its own.
func Clock(c *verbs.Call) { clock(c) }

// Times returns the times of the last list of a call by the clock of package boottime: one
// before it was posted, and one after its end, or 0 if the post did not find that at once.
func Times(c *verbs.Call) (posted, over time.Duration) { return times(c) }
