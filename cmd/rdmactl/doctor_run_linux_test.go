package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

// The self-test finds on Soft-RoCE what the table of features says of it, and
// leaves nothing behind.
func TestSelfTestOnSoftRoCE(t *testing.T) {
	lab.RequireTopology(t, "wire")
	release := strings.Split(os.Getenv("LAB_KERNEL_RELEASE"), ".")
	require.Greater(t, len(release), 1)
	kernel := release[0] + "." + release[1]
	table := featureTable(t)
	// librdmacm keeps devices open that it has used once.
	ctl(t, "doctor -run rxe0 rxe1")
	lab.NoLeftovers(t)

	for _, line := range []string{"doctor -run", "doctor -run rxe1:1 rxe0"} {
		start := time.Now()
		r := ask[runReport](t, line)
		took := time.Since(start)
		require.Less(t, took, time.Minute, line)
		for _, x := range r.Results {
			want := table[x.Feature][kernel]
			if _, cannot := notInSelfTest[x.Feature]; cannot {
				want = untried
			}
			if x.Feature == "FLUSH" && kernel != "6.1" && x.Result == works {
				continue // the table is of a build with the headers of rdma-core 44, which lack it
			}
			require.Equal(t, want, x.Result, "%s: %s: %s", line, x.Feature, x.Note)
			if x.Result == refused {
				require.NotEmpty(t, x.Note, "%s: %s: a reason", line, x.Feature)
			}
		}
		require.Len(t, r.Results, len(table))
		require.Equal(t, "rxe", r.About.Driver)
		require.Equal(t, "Ethernet", r.About.LinkLayer)
		require.Equal(t, os.Getenv("LAB_KERNEL_RELEASE"), r.About.Kernel)
		require.Regexp(t, `^\d+\.\d+$`, r.About.RDMACore)
		require.NotEmpty(t, r.About.GIDs)
		t.Logf("%s: %v, rdma-core %s", line, took, r.About.RDMACore)
	}
}

func TestSelfTestTellsNoAddresses(t *testing.T) {
	end := lab.Require(t, 1)[0]
	status, stdout, stderr := ctl(t, "doctor -json -run "+end.Device)
	require.Zero(t, status, "%s%s", stdout, stderr)
	require.NotContains(t, stdout, end.Addr.String())
	status, stdout, _ = ctl(t, "doctor -json -run -addresses "+end.Device)
	require.Zero(t, status)
	require.Contains(t, stdout, end.Addr.String())
}

// Something wrong is told, and makes the exit status 1: a port that loses all
// packets is still active.
func TestSelfTestFindsWrong(t *testing.T) {
	lab.RequireTopology(t, "wire")
	lab.ImpairWire(t, lab.Impairment{Loss: 1})
	here, err := place{device: "rxe0"}.find()
	require.NoError(t, err)
	there, err := place{device: "rxe1"}.find()
	require.NoError(t, err)
	a, err := aboutPort(here, false)
	require.NoError(t, err)
	i := indexOfTest(t, "READ, WRITE, WRITE with immediate")
	_, err = tryFeature(context.Background(), selfTests[i], here, there, a.Features)
	result, note := verdict(selfTests[i], a.Features, err, "")
	require.Equal(t, wrong, result, note)
	require.ErrorIs(t, err, verbs.WCRetryExceeded)
}

func indexOfTest(t *testing.T, feature string) int {
	for i, c := range selfTests {
		if c.feature == feature {
			return i
		}
	}
	t.Fatalf("no test of %s", feature)
	return 0
}
