//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
)

// freePort finds a TCP port that nobody listens on.
func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// play runs server and client of one test in this process and answers the
// client's result.
func play(t *testing.T, args string) (*result, error) {
	t.Helper()
	ends := lab.Require(t, 2)
	port := freePort(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	side := func(dev, server string) (*result, error) {
		o, err := parse(strings.Fields(fmt.Sprintf("%s -d %s -p %d %s", args, dev, port, server)))
		if err != nil {
			return nil, err
		}
		ln, err := listen(ctx, o)
		if err != nil {
			return nil, err
		}
		if ln != nil {
			defer ln.Close()
		}
		s, err := open(ctx, o, o.params, ln)
		if err != nil {
			return nil, err
		}
		defer s.close()
		r, err := s.measure(ctx)
		if err != nil {
			return nil, err
		}
		return r, s.finish(ctx)
	}
	served := make(chan error, 1)
	go func() {
		_, err := side(ends[1].Device, "")
		served <- err
	}()
	r, err := side(ends[0].Device, "127.0.0.1")
	if serr := <-served; err == nil {
		err = serr
	}
	return r, err
}

func TestEveryTest(t *testing.T) {
	lab.Require(t, 2)
	lab.NoLeftovers(t)
	for _, args := range []string{
		"read_lat -s 64 -n 50", "read_lat -s 64 -n 50 -e", "write_lat -s 64 -n 50", "write_lat -s 8 -I 64 -n 50",
		"write_lat -passive -n 50", "write_lat -c UC -n 50", "send_lat -n 50", "send_lat -n 50 -e", "send_lat -c UC -n 50",
		"send_lat -c UD -s 1024 -n 50", "atomic_lat -n 50", "atomic_lat -A CMP_AND_SWAP -n 50",
		"read_lat -D 0.1", "read_bw -n 100", "read_bw -n 60 -e", "write_bw -n 100 -q 3", "write_bw -D 0.1", "send_bw -n 100",
		"send_bw -c UD -s 512 -n 200",
	} {
		t.Run(args, func(t *testing.T) {
			r, err := play(t, args)
			require.NoError(t, err)
			require.Positive(t, r.count)
			rep := r.report()
			if rep.Latency != nil {
				require.Positive(t, rep.Latency.P50)
				require.LessOrEqual(t, rep.Latency.P50, rep.Latency.Max)
			} else {
				require.Positive(t, rep.MiBps)
			}
		})
	}
}

func TestDatagramLongerThanTheMTU(t *testing.T) {
	_, err := play(t, "send_lat -c UD -s 5000")
	require.ErrorContains(t, err, "at most 4096 bytes")
}
