package cachestatus

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// serve has a daemon say of its cluster the n-th thing the n-th time, and then always the last one. It returns its address.
func serve(t *testing.T, said ...*Cluster) string {
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i := min(int(asked.Add(1)), len(said)) - 1
		_ = json.NewEncoder(w).Encode(Status{Listens: "10.77.0.2:7481", Cluster: said[i]})
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// A daemon that replies slowly has most of the time for its clients.
func TestSettledAsksASlowDaemonSeldom(t *testing.T) {
	const slow = 10 * time.Millisecond
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(slow)
		said := &Cluster{State: "joining"}
		if asked.Add(1) == 3 {
			said = &Cluster{State: "member"}
		}
		_ = json.NewEncoder(w).Encode(Status{Listens: "10.77.0.2:7481", Cluster: said})
	}))
	defer s.Close()
	begun := time.Now()
	require.NoError(t, Settled(t.Context(), strings.TrimPrefix(s.URL, "http://"), 0, nil))
	require.GreaterOrEqual(t, time.Since(begun), 2*10*slow)
}

func TestSettled(t *testing.T) {
	two := make([]Member, 2)
	unsettled := []*Cluster{
		nil,
		{State: "joining", Members: two},
		{State: "member", Members: two[:1]},
		{State: "member", Members: two, Planned: 1},
	}
	require.NoError(t, Settled(t.Context(), serve(t, append(unsettled, &Cluster{State: "member", Members: two})...), 2, nil))
	for _, c := range unsettled {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		require.ErrorIs(t, Settled(ctx, serve(t, c), 2, nil), context.DeadlineExceeded, "%+v", c)
		cancel()
	}
	ended, err := make(chan error, 1), errors.New("out of memory")
	ended <- err
	require.ErrorIs(t, Settled(t.Context(), serve(t, unsettled...), 3, ended), err)
}

func TestClusterOfAServerWithout(t *testing.T) {
	at := serve(t, nil)
	_, err := GetCluster(t.Context(), at)
	require.EqualError(t, err, at+": it is in no cluster")
}
