package machine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// A client took the mark off a ticket and has not passed it on yet: the target marks it
// again, and it is one ticket all the same, also where numbers begin anew.
func TestSkippedTicketIsCountedOnce(t *testing.T) {
	w := NewTicketWatch(new(memory.Layout), nil, 0)
	require.Equal(t, 3, w.Count(&Marker{slot: 1, marked: []uint32{1<<32 - 2, 1<<32 - 1, 0}}))
	require.Equal(t, 0, w.Count(&Marker{slot: 1, marked: []uint32{1<<32 - 2, 0}}))
	require.Equal(t, 1, w.Count(&Marker{slot: 1, marked: []uint32{0, 1}}))
	require.Equal(t, 1, w.Count(&Marker{slot: 2, marked: []uint32{1}}))
}
