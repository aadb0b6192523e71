package hosts

import (
	"time"

	"github.com/goverbs/goverbs/srd/internal/wire"
)

// Heard is when something came from a peer last: by the machine's clock, which does not jump,
// and by the clock passed to Advance.
type Heard struct{ At, Raw time.Duration }

// Forgets reports whether nothing came for so long that the peer may forget this endpoint, at
// the time raw by the second clock. The peer has to be greeted before more is sent: what is
// under way in a session that it has forgotten ends as unresponsive.
func (h Heard) Forgets(raw time.Duration, l *wire.Limits) bool {
	return raw-h.Raw >= time.Duration(l.Remember)*time.Microsecond/2
}
