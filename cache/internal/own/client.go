package own

import "time"

// Client is what a client knows of one life of a server. The clocks of both have nothing in common but their
// rates. The zero value with a Config may READ nothing.
type Client struct {
	Config Config

	version uint32
	list    []uint32      // by shard: the epoch of its owner, 0 if it must not be READ
	until   time.Duration // of the server's clock

	known bool
	clock time.Duration // of the server, at the local time asked or later
	asked time.Duration
}

// Listed takes a list of the shards that may be READ: for each the epoch of its owner, or 0. It reports
// whether the list is newer than the last one. The client confirms [Client.Version] to the server.
func (c *Client) Listed(version uint32, list []uint32) bool {
	if version <= c.version {
		return false
	}
	c.version, c.list = version, list
	return true
}

// Version returns the version of the last list, or 0.
func (c *Client) Version() uint32 { return c.version }

// Heard takes a grant at the local time now. It is the reply to what the client sent at the local time
// asked, or no reply if asked is below 0. A grant of a list that the client does not have yet only
// bounds the server's clock.
func (c *Client) Heard(g Grant, asked, now time.Duration) {
	if g.Version <= c.version {
		c.until = max(c.until, g.Until)
	}
	latest, ok := c.latest(now)
	if g.Clock > latest {
		c.known, ok = false, false // the local clock has stood still
	}
	if asked >= 0 && (!ok || g.Clock+c.passed(now-asked) <= latest) {
		c.known, c.clock, c.asked = true, g.Clock, asked
	}
}

// passed returns how far the server's clock can go on in a time of the local clock.
func (c *Client) passed(d time.Duration) time.Duration {
	return d + d/time.Duration(c.Config.Drift-1) + 1
}

// latest returns the latest time that the server's clock can show.
func (c *Client) latest(now time.Duration) (latest time.Duration, ok bool) {
	return c.clock + c.passed(now-c.asked), c.known
}

// May reports whether the result of a READ counts, also of one that has found nothing: the server
// owned the shard in that epoch, and let it be READ. The caller calls it when the READ has completed, with the
// epoch of the time when it began.
func (c *Client) May(i int, epoch uint32, now time.Duration) bool {
	return c.Remaining(now) > 0 && epoch != 0 && i < len(c.list) && c.list[i] == epoch
}

// Remaining returns for how long the grant lasts at least. The client asks for another one when it is half a
// second.
func (c *Client) Remaining(now time.Duration) time.Duration {
	latest, ok := c.latest(now)
	if !ok {
		return 0
	}
	return c.until - latest
}
