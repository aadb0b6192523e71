package dc

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPeerIsSmall: of the 256 bytes that an idle target may cost, the rest is the
// index by address.
func TestPeerIsSmall(t *testing.T) {
	require.LessOrEqual(t, reflect.TypeFor[Peer]().Size(), uintptr(192))
}
