//go:build linux && cgo

package standin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/standin"
)

// One slow moment costs a program that waits few of its next tries to have the CPU given up, each
// of which would save an event; beside one that computes all the time hardly any is left.
func TestLeftOutAfterASlowYield(t *testing.T) {
	var all []int
	for n := 0; len(all) < 7; {
		n = standin.LeftOut(n)
		all = append(all, n)
	}
	require.Equal(t, []int{15, 31, 63, 127, 255, 255, 255}, all)
}
