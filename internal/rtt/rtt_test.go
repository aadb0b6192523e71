package rtt

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEstimate(t *testing.T) {
	var e Estimate
	for _, s := range []struct{ sample, srtt, rttvar, timeout time.Duration }{
		{800, 800, 400, 2400},
		{1600, 900, 500, 2900},
		{100, 800, 575, 3100},
		{800, 800, 432, 2528},
	} {
		e.Sample(s.sample)
		require.Equal(t, Estimate{s.srtt, s.rttvar}, e)
		require.Equal(t, s.timeout, e.Timeout())
	}
}
