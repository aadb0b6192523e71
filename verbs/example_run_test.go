//go:build linux

package verbs_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/exampletest"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// What examples say that they print is what they print, in the lab.
func TestExamples(t *testing.T) {
	t.Setenv("RDMA_DEVICE", "")
	rig.Ports(t)
	prints := rig.Prints(t, "example_link_test.go", "example_verbs_test.go")
	serving := strings.SplitAfter(prints["ExampleServeLinks"], "\n")
	want := prints["ExampleDialLink"] + prints["ExampleRequester_FetchAdd"] + prints["ExampleRequester_Do"] + prints["ExampleNewLink"] +
		serving[0] + prints["ExampleReceiver"] + serving[1] +
		prints["ExampleCQ_Wait"] + prints["ExampleWindowBinding"] + prints["ExampleQP_Done"]
	got := exampletest.Output(t, func() {
		served := make(chan struct{})
		go func() { defer close(served); ExampleServeLinks() }()
		require.Eventually(t, func() bool {
			c, err := net.Dial("tcp", "10.77.0.2:7471")
			if err == nil {
				c.Close() // a client that gives up
			}
			return err == nil
		}, rig.Timeout, 5*time.Millisecond)
		ExampleDialLink()
		ExampleRequester_FetchAdd()
		ExampleRequester_Do()
		ExampleNewLink()
		ExampleReceiver()
		l, err := verbs.DialLink(t.Context(), "10.77.0.2:7471", verbs.LinkConfig{})
		require.NoError(t, err)
		q, err := l.Requester()
		require.NoError(t, err)
		mr, err := l.AllocMR(64, verbs.MRConfig{})
		require.NoError(t, err)
		// The server closes the link at once, perhaps before the acknowledgement has left.
		_ = q.Send(t.Context(), mr.SGE(0, copy(mr.Bytes(), "good bye")))
		<-served
		require.NoError(t, l.Close())
		ExampleCQ_Wait()
		ExampleWindowBinding()
		ExampleQP_Done()
	})
	require.Equal(t, want, got)
	require.Len(t, prints, 9, "an example that is not run")
}
