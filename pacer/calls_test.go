package pacer

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// A paced queue pair has the calls of what it stands for, but for those that are
// named here: they go through Other, or make no sense on it.
func TestSameCalls(t *testing.T) {
	other := []string{"AtomicWrite", "Flush", "MaskedCmpSwap", "MaskedCmpSwap32", "MaskedFetchAdd", "MaskedFetchAdd32", "BindWindow", "LocalInvalidate", "SendInvalidate", "Raw"}
	datagrams := []string{"SendTo", "SendToImm", "SetTarget"} // RC has none
	queue := []string{"PollEx", "Moderate", "Resize", "Raw", "Close", "Dispatch"}
	for _, c := range []struct {
		theirs, ours reflect.Type
		missing      []string
	}{
		{reflect.TypeFor[*verbs.Batch](), reflect.TypeFor[*Batch](), append(other, datagrams...)},
		{reflect.TypeFor[*verbs.RecvBatch](), reflect.TypeFor[*RecvBatch](), nil},
		{reflect.TypeFor[*verbs.CQ](), reflect.TypeFor[*CQ](), queue}, // which are the queue's own
	} {
		var missing []string
		for i := range c.theirs.NumMethod() {
			m := c.theirs.Method(i)
			if _, ok := c.ours.MethodByName(m.Name); !ok {
				missing = append(missing, m.Name)
			}
		}
		require.ElementsMatch(t, c.missing, missing, "%v", c.ours)
	}
}
