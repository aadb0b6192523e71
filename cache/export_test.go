package cache

import "github.com/goverbs/goverbs/cache/internal/wire"

// Switch has the server take another mode for this client's, as long as the connection lasts.
func (c *Client) Switch(m wire.Mode) {
	s := c.now.Load()
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = wire.AppendMode(s.out, m)
	s.signal()
}
