package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

// A READ counts while the server's clock certainly shows less than the end of the grant, of which half is used before
// another one is due.
func TestGrant(t *testing.T) {
	m := New(Config{})
	m.Begin(&wire.Map{Epoch: 1, Granted: true})
	granted := func(now int64, ok, due bool) {
		t.Helper()
		gotOK, gotDue := m.Granted(now)
		require.Equal(t, [2]bool{ok, due}, [2]bool{gotOK, gotDue}, "at %d", now)
	}
	granted(0, false, true)
	m.Replied(10_000, 0, 5) // the server's clock is 10,000 at 0 or later
	m.Grant(12_000, 10_000)
	granted(5, true, false)
	granted(997, true, false)
	granted(999, true, true) // and what the clocks may differ by
	granted(1_997, true, true)
	granted(1_998, false, true)
	m.Grant(0, 11_000) // refused: the last one goes on, and the client asks again soon
	m.Replied(11_000, 1_000, 1_001)
	granted(1_005, true, false)
	granted(1_010, true, true)
	m.Grant(11_500, 11_000)
	granted(1_400, true, true)
	m.Told(99_000, 1_400) // the local clock has stood still: nothing is known
	granted(1_400, false, true)
	m.Begin(&wire.Map{Epoch: 2, Granted: true})
	m.Replied(1, 1_400, 1_400)
	granted(1_400, false, true)
}
