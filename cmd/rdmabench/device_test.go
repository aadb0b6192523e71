//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/internal/procs"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) {
	procs.SpareProcs() // both sides poll in this process
	os.Exit(m.Run())
}

// freePort returns a port on which nothing listens. It is none that the kernel gives to programs
// that do not name one: clients of a server that had it may still dial it.
func freePort(t *testing.T) int {
	for range 100 {
		port := 20_000 + rand.IntN(10_000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			require.NoError(t, l.Close())
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// sides are the command lines of a server and a client on the two devices of
// the lab.
func sides(t *testing.T, args string) (server, client []string) {
	t.Helper()
	ends := lab.Require(t, 2)
	lab.NoLeftovers(t)
	// A machine that stands still for longer than the acknowledgement timeout
	// has rxe send again from the middle of a WRITE, which Linux 6.1 refuses as
	// an invalid request: seen under load, and with -u 7 every few runs.
	side := func(dev string, port int) string { return fmt.Sprintf("%s -u 18 -d %s -p %d", args, dev, port) }
	port := freePort(t)
	return strings.Fields(side(ends[1].Device, port)), strings.Fields(side(ends[0].Device, port) + " 127.0.0.1")
}

// play runs a test and returns what the client printed.
func play(t *testing.T, server, client []string) (out string, serverErr, clientErr error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		var out bytes.Buffer
		err := runArgs(ctx, server, &out, io.Discard)
		if err == nil && out.Len() > 0 {
			err = fmt.Errorf("the server printed %q", out.String())
		}
		served <- err
	}()
	var b bytes.Buffer
	err := runArgs(ctx, client, &b, io.Discard)
	return b.String(), <-served, err
}

func TestEveryTest(t *testing.T) {
	for _, args := range []string{
		"read_lat -s 64", "read_lat -e", "read_lat -D 0.5", "read_lat -m 1024 -s 5000 -x 1", "atomic_lat", "atomic_lat -A CMP_AND_SWAP",
		"write_lat -s 64", "write_lat -s 8 -I 64", "write_lat -s 70000", "write_lat -c UC", "write_lat -D 0.5", "write_lat -passive -e",
		"send_lat -s 64", "send_lat -e", "send_lat -c UC", "send_lat -c UD -s 1024", "send_lat -c UD -e", "send_lat -D 0.5 -warmup 0",
		"send_lat -r 1",
		"read_bw -s 4096", "read_bw -yield=false", "send_bw -yield=false -c UD -s 1024", "write_lat -yield",
		"read_bw -e -o 1", "write_bw -s 64 -q 3 -Q 7 -l 5 -t 10", "write_bw -s 64 -Q 8 -l 6 -t 10", "write_bw -l 16", "read_bw -l 0", "send_bw -c UD -l 16 -e", "read_lat -D 0.2 -f 0",
		"write_bw -D 0.1 -Q 100", "write_bw -c UC -s 64",
		"send_bw", "send_bw -e -s 64 -warmup 10", "send_bw -c UD", "send_bw -c UD -D 0.1 -s 64",
	} {
		t.Run(args, func(t *testing.T) {
			if !strings.Contains(args, "-D") {
				args += " -n 50"
			}
			server, client := sides(t, args+" -json")
			out, serr, cerr := play(t, server, client)
			require.NoError(t, errors.Join(cerr, serr))
			var rep struct {
				report
				rates
			}
			require.NoError(t, json.Unmarshal([]byte(out), &rep), out)
			require.Equal(t, strings.Contains(args, "-e"), rep.Events)
			require.Equal(t, strings.Contains(args, "-yield") && !strings.Contains(args, "-yield=false") || runtime.NumCPU() == 1 && !strings.Contains(args, "-yield"),
				rep.Yield)
			require.Equal(t, strings.Contains(args, "-I 64"), rep.Inline)
			mtu := 4096
			if strings.Contains(args, "-m 1024") {
				mtu = 1024
			}
			require.Equal(t, mtu, rep.MTU)
			require.Equal(t, 1, rep.GIDIndex)
			require.Equal(t, "::ffff:10.77.0.1", rep.GID)
			require.NotEmpty(t, rep.Kernel)
			require.Equal(t, strings.Contains(args, "-D") && !strings.Contains(args, "-f 0"), rep.Margin > 0)
			switch {
			case strings.Contains(args, "-q 3"):
				require.Equal(t, 150, rep.Iterations)
			case strings.Contains(args, "-n 50"):
				require.Equal(t, 50, rep.Iterations)
			default:
				require.Positive(t, rep.Iterations)
			}
			if l := rep.Latency; l != nil {
				require.Positive(t, l.Min)
				require.True(t, l.Min <= l.P50 && l.P50 <= l.P99 && l.P99 <= l.Max && l.Avg <= l.Max, "%+v", l)
				return
			}
			require.Positive(t, rep.MiBps)
			require.InEpsilon(t, rep.MiBps*1.048576, rep.MBps, 1e-9)
			require.Equal(t, !strings.Contains(args, "-D"), rep.Peak > 0)
			if rep.Peak > 0 {
				require.GreaterOrEqual(t, rep.Peak, rep.MiBps*0.999)
			}
			if strings.Contains(args, "send_bw") && !strings.Contains(args, "UD") {
				require.EqualValues(t, rep.Sent, *rep.Received)
			}
		})
	}
}

func TestSweepOverOneConnection(t *testing.T) {
	server, client := sides(t, "send_lat -c UD -a -n 5 -warmup 0")
	out, serr, cerr := play(t, server, client)
	require.NoError(t, cerr)
	require.NoError(t, serr)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Contains(t, lines[0], "# polling")
	require.Contains(t, lines[1], "p99.9[us]")
	require.Contains(t, lines[len(lines)-1], "4096")
	require.Len(t, lines, 2+12)
}

func TestDisagreementIsSaidOnBothSides(t *testing.T) {
	server, client := sides(t, "read_lat")
	_, serr, cerr := play(t, append(server, "-s", "128"), append([]string{"read_lat", "-s", "64"}, client[1:]...))
	require.EqualError(t, serr, "the peer runs another test: -s is 128 here and 64 there")
	require.EqualError(t, cerr, "the peer runs another test: -s is 64 here and 128 there")
}

func TestDatagramLongerThanTheMTU(t *testing.T) {
	server, client := sides(t, "send_lat -c UD -s 5000")
	_, serr, cerr := play(t, server, client)
	require.ErrorContains(t, cerr, "at most 4096 bytes")
	require.ErrorContains(t, serr, "at most 4096 bytes")
}

// A server that will never be of use must not wait for a client to find out.
func TestServerNeedsADevice(t *testing.T) {
	if list, err := verbs.Devices(); err == nil && len(list) > 0 {
		t.Skip("this host has a device")
	}
	var log bytes.Buffer
	err := runArgs(t.Context(), []string{"read_lat", "-p", "0"}, io.Discard, &log)
	require.Error(t, err)
	require.True(t, errors.Is(err, verbs.ErrNoDevice) || errors.Is(err, verbs.ErrUnsupported), "%v", err)
	require.Empty(t, log.String())
}

func TestNoSuchDevice(t *testing.T) {
	lab.Require(t, 1)
	err := runArgs(t.Context(), []string{"read_lat", "-d", "none7"}, io.Discard, io.Discard)
	require.ErrorContains(t, err, "no such RDMA device")
}

// Whichever side is interrupted, both end at once and leave nothing behind.
func TestInterrupt(t *testing.T) {
	defer func(old time.Duration) { meterPeriod = old }(meterPeriod)
	meterPeriod = 20 * time.Millisecond
	for _, args := range []string{"read_lat", "write_lat", "send_lat", "send_lat -e", "send_lat -c UD", "write_bw", "send_bw", "read_bw -e"} {
		for _, who := range []string{"client", "server"} {
			t.Run(args+" "+who, func(t *testing.T) {
				server, client := sides(t, args+" -D 60")
				under := &firstWrite{done: make(chan struct{})}
				r := interruptible(t, server, append([]string{client[0], "-progress"}, client[1:]...), under)
				select {
				case <-under.done:
				case <-time.After(30 * time.Second):
					t.Fatal("the test does not begin")
				}
				begun := time.Now()
				r[who].cancel()
				for name, side := range r {
					err := <-side.err
					if name == who {
						require.EqualError(t, err, "interrupted")
					} else {
						require.ErrorContains(t, err, "the peer ", name)
					}
				}
				require.Less(t, time.Since(begun), 3*time.Second)
			})
		}
	}
}

// So do they while they set up. A server that has not met its client yet goes on
// waiting for one.
func TestInterruptOfTheSetup(t *testing.T) {
	turns := 10
	if testing.Short() {
		turns = 4
	}
	for i := range turns {
		for _, who := range []string{"client", "server"} {
			server, client := sides(t, "send_lat -e -D 60")
			r := interruptible(t, server, client, io.Discard)
			time.Sleep(time.Duration(i) * 600 * time.Millisecond / time.Duration(turns)) // it takes some 200 ms
			begun := time.Now()
			slow := time.AfterFunc(2*time.Second, func() { // say where it hangs
				t.Logf("%s after %d:", who, i)
				_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
			})
			r[who].cancel()
			require.Error(t, <-r[who].err)
			if who == "server" { // the client may be looking for it still, for 10 s
				r["client"].cancel()
				require.Error(t, <-r["client"].err)
			} else {
				select {
				case err := <-r["server"].err:
					require.Error(t, err)
				case <-time.After(200 * time.Millisecond):
					r["server"].cancel()
					require.Error(t, <-r["server"].err)
				}
			}
			slow.Stop()
			require.Less(t, time.Since(begun), 3*time.Second, "%s after %d", who, i)
		}
	}
}

type side struct {
	cancel context.CancelFunc
	err    chan error
}

// interruptible runs both sides of a test, until they are cancelled.
func interruptible(t *testing.T, server, client []string, clientLog io.Writer) map[string]side {
	start := func(args []string, log io.Writer) side {
		ctx, cancel := context.WithCancel(t.Context())
		s := side{cancel, make(chan error, 1)}
		go func() { s.err <- runArgs(ctx, args, io.Discard, log) }()
		return s
	}
	return map[string]side{"server": start(server, io.Discard), "client": start(client, clientLog)}
}

// firstWrite tells when something is written.
type firstWrite struct {
	once sync.Once
	done chan struct{}
}

func (w *firstWrite) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.done) })
	return len(b), nil
}

func TestLoopServesOneAfterTheOther(t *testing.T) {
	server, client := sides(t, "read_lat -n 20 -json")
	ctx, cancel := context.WithCancel(t.Context())
	var log bytes.Buffer
	served := make(chan error, 1)
	go func() { served <- runArgs(ctx, append(server, "-loop"), io.Discard, &log) }()
	wrong := append([]string{"read_lat", "-s", "9"}, client[1:]...)
	for _, c := range [][]string{client, wrong, client} {
		var out bytes.Buffer
		err := runArgs(t.Context(), c, &out, io.Discard)
		if c[1] == "-s" {
			require.ErrorContains(t, err, "another test")
		} else {
			require.NoError(t, err)
		}
	}
	cancel()
	require.NoError(t, <-served)
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	require.Len(t, lines, 2, log.String())
	require.Regexp(t, `^rdmabench: waiting for a client at \[?[0-9a-f.:]+\]?:[0-9]+$`, lines[0])
	require.Contains(t, lines[1], "another test")
}

// pair connects the two sides of a test.
func pair(t *testing.T, args string) (server, client *session) {
	t.Helper()
	sa, ca := sides(t, args)
	a, b := net.Pipe()
	made := make(chan *session, 1)
	open := func(args []string, conn net.Conn) *session {
		o, err := parse(args, io.Discard)
		require.NoError(t, err)
		h, err := openHost(o, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, h.close()) })
		s, err := connect(t.Context(), h, o, &control{conn: conn}, o.params)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.close()) })
		return s
	}
	go func() { made <- open(sa, a) }()
	client = open(ca, b)
	return <-made, client
}

func TestLoopsDoNotAllocate(t *testing.T) {
	for _, args := range []string{"read_lat", "read_lat -e", "atomic_lat", "write_lat", "send_lat", "send_lat -e", "send_lat -c UD", "read_bw -s 64", "write_bw -s 64", "write_bw -s 64 -yield=false"} {
		t.Run(args, func(t *testing.T) {
			server, client := pair(t, args)
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan struct{})
			go func() {
				defer close(served)
				if loop, err := newLatency(server); err == nil && server.p.pingPong() {
					_ = loop(ctx, span{n: forever}, newRecorder(1, nil, 0))
				}
			}()
			var round func() error
			if client.p.bandwidth() {
				b := newSender(client)
				round = func() error { return b.run(ctx, span{n: 100}, nil) }
			} else {
				loop, err := newLatency(client)
				require.NoError(t, err)
				rec := newRecorder(1, newMeter(false, nil, client.p), 10000)
				_ = rec.touch(ctx)
				round = func() error { return loop(ctx, span{n: 20}, rec) }
			}
			require.NoError(t, round())
			// Of many turns each: what is made once, such as the watch of a context by
			// the first wait that parks, is less than one of 20 rounds. The two sides spin,
			// which takes long on the one processor of testing.AllocsPerRun.
			const rounds = 20
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range rounds {
				require.NoError(t, round())
			}
			runtime.ReadMemStats(&after)
			require.Less(t, after.Mallocs-before.Mallocs, uint64(rounds))
			cancel()
			<-served
		})
	}
}

func runArgs(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	return run(ctx, o, stdout, stderr)
}
