package dc

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/dc/internal/session"
)

// TestPeerIsSmall: of the 256 bytes that an idle target may cost, the rest is the
// index by address; one that was used costs twice as much.
func TestPeerIsSmall(t *testing.T) {
	require.LessOrEqual(t, reflect.TypeFor[Peer]().Size(), uintptr(96))
	used := reflect.TypeFor[session.Peer]().Size() + reflect.TypeFor[activity]().Size()
	require.LessOrEqual(t, used, uintptr(480))
}
