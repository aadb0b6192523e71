package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

// The self-test finds on Soft-RoCE what the table of features says of it, leaves nothing behind,
// and reports addresses only when asked to.
func TestSelfTestOnSoftRoCE(t *testing.T) {
	lab.RequireTopology(t, "wire")
	ends := lab.Require(t, 2)
	release := strings.Split(os.Getenv("LAB_KERNEL_RELEASE"), ".")
	require.Greater(t, len(release), 1)
	kernel := release[0] + "." + release[1]
	table := featureTable(t)
	run := func(line string) string {
		start := time.Now()
		status, stdout, stderr := ctl(t, line)
		took := time.Since(start)
		require.Zero(t, status, "%s: %s%s", line, stdout, stderr)
		require.Less(t, took, time.Minute, line)
		var r runReport
		require.NoError(t, json.Unmarshal([]byte(stdout), &r), stdout)
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
		return stdout
	}
	require.Contains(t, run("doctor -json -run -addresses rxe1:1 rxe0"), ends[1].Addr.String())
	lab.NoLeftovers(t) // from here on: librdmacm keeps devices open that it has used once
	out := run("doctor -json -run")
	require.NotContains(t, out, ends[0].Addr.String())
	require.NotContains(t, out, ends[1].Addr.String())
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
