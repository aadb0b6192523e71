package srd

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A deadline counts for calls that wait already: put off or taken away, it lets them wait, and after
// it calls fail until there is another one.
func TestDeadline(t *testing.T) {
	var d deadline
	ended := func(ctx context.Context) { <-ctx.Done() }
	call := d.context()
	require.NoError(t, call.Err())
	d.set(time.Now().Add(time.Hour))
	require.Equal(t, call, d.context())
	d.set(time.Now().Add(time.Millisecond))
	ended(call)
	ended(d.context())
	d.set(time.Time{})
	call = d.context()
	require.NoError(t, call.Err())
	d.set(time.Now().Add(-time.Second))
	ended(call)
	require.Error(t, d.context().Err())
	d.set(time.Now().Add(time.Hour))
	require.NoError(t, d.context().Err())

	var first deadline
	first.set(time.Now())
	require.Error(t, first.context().Err())
}
