//go:build linux

package verbs_test

import (
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/internal/rig"
)

// What examples say that they print is what they print, in the lab, whose
// addresses are in them.
func TestExamples(t *testing.T) {
	if !lab.In() {
		t.Skip("for the lab: its addresses are in the examples")
	}
	rig.Ports(t)
	source, err := os.ReadFile("example_link_test.go")
	require.NoError(t, err)
	prints := map[string]string{}
	for _, f := range regexp.MustCompile(`(?ms)^func (Example\w+)\(\) \{.*?\n\t// Prints: (.*?)\n\}`).FindAllStringSubmatch(string(source), -1) {
		prints[f[1]] = strings.ReplaceAll(f[2], "\n\t// ", "\n") + "\n"
	}
	serving := strings.SplitAfter(prints["ExampleServeLinks"], "\n")
	want := prints["ExampleDialLink"] + prints["ExampleRequester_FetchAdd"] + prints["ExampleRequester_Do"] + prints["ExampleNewLink"] +
		serving[0] + prints["ExampleReceiver"] + serving[1]

	r, w, err := os.Pipe()
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = stdout }()
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
	require.NoError(t, q.Send(t.Context(), mr.SGE(0, copy(mr.Bytes(), "good bye"))))
	<-served
	require.NoError(t, l.Close())
	require.NoError(t, w.Close())
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
	require.Len(t, prints, 6, "an example that is not run")
}
