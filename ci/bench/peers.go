package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/verbs"
)

// Each pass has a TCP port of its own: the last one's may linger.
var lastPort atomic.Int32

func nextPort() string { return strconv.Itoa(20000 + int(lastPort.Add(1))%20000) }

// passLimit bounds one pass.
const passLimit = 120 * time.Second

// pairOf runs a server on the second endpoint and a client on the first, and
// answers what the client printed.
func pairOf(ctx context.Context, server, client []string, extraEnv ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, passLimit)
	defer cancel()
	env := append(os.Environ(), extraEnv...)
	srv := exec.CommandContext(ctx, server[0], server[1:]...)
	srv.Env = env
	var srvOut bytes.Buffer
	srv.Stdout, srv.Stderr = &srvOut, &srvOut
	srv.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := srv.Start(); err != nil {
		return nil, err
	}
	defer func() {
		srv.Process.Kill()
		srv.Wait()
	}()
	var lastErr error
	// perftest's client does not wait for its server.
	for range 20 {
		time.Sleep(150 * time.Millisecond)
		cl := exec.CommandContext(ctx, client[0], client[1:]...)
		cl.Env = env
		var out, errOut bytes.Buffer
		cl.Stdout, cl.Stderr = &out, &errOut
		err := cl.Run()
		if err == nil {
			return out.Bytes(), nil
		}
		lastErr = fmt.Errorf("%s: %w: %s %s; server: %s", strings.Join(client, " "), err, tail(errOut.Bytes()), tail(out.Bytes()), tail(srvOut.Bytes()))
		if ctx.Err() != nil || !bytes.Contains(append(errOut.Bytes(), out.Bytes()...), []byte("Couldn't connect")) {
			break
		}
	}
	return nil, lastErr
}

func tail(b []byte) string {
	s := strings.TrimSpace(string(b))
	if len(s) > 300 {
		s = "..." + s[len(s)-300:]
	}
	return s
}

// endpoints are the two ends of the wire: client's, then server's.
func endpoints() (client, server lab.Endpoint, err error) {
	list, err := lab.Endpoints()
	switch {
	case err != nil:
		return
	case len(list) == 0:
		return client, server, errors.New("no RDMA device with an address: run this in the lab")
	case len(list) == 1:
		return list[0], list[0], nil
	}
	return list[0], list[1], nil
}

// gidIndex finds the index that perftest wants.
func gidIndex(device string, addr netip.Addr) (string, error) {
	d, err := verbs.Open(device, verbs.DeviceConfig{})
	if err != nil {
		return "", err
	}
	defer d.Close()
	v2 := verbs.GIDRoCEv2
	g, err := d.FindGID(verbs.GIDQuery{Addr: addr, Type: &v2})
	return strconv.Itoa(int(g.Index)), err
}

// perftest runs one of perftest's programs and picks a column of its result.
func perftest(program string, column int, shim string, args ...string) pass {
	return func(ctx context.Context) (float64, error) {
		c, s, err := endpoints()
		if err != nil {
			return 0, err
		}
		side := func(e lab.Endpoint) ([]string, error) {
			g, err := gidIndex(e.Device, e.Addr)
			return append([]string{program, "-F", "-d", e.Device, "-x", g}, args...), err
		}
		server, err := side(s)
		if err != nil {
			return 0, err
		}
		client, err := side(c)
		if err != nil {
			return 0, err
		}
		port := nextPort()
		out, err := pairOf(ctx, append(server, "-p", port), append(client, "-p", port, s.Addr.String()), preload(shim)...)
		if err != nil {
			return 0, err
		}
		return parsePerftest(out, column)
	}
}

func preload(shim string) []string {
	if shim == "" {
		return nil
	}
	return []string{"LD_PRELOAD=" + shim}
}

// Columns of perftest's tables.
const (
	latTypical = 4 // bytes, iterations, min, max, typical (median), ...: microseconds
	bwAverage  = 3 // bytes, iterations, peak, average: MiB/s
	bwRate     = 4 // ..., message rate: million per second
)

// parsePerftest finds the row below the "#bytes" header.
func parsePerftest(out []byte, column int) (float64, error) {
	lines := strings.Split(string(out), "\n")
	for i, l := range lines {
		if !strings.Contains(l, "#bytes") || i+1 >= len(lines) {
			continue
		}
		fields := strings.Fields(lines[i+1])
		if column >= len(fields) {
			break
		}
		v, err := strconv.ParseFloat(fields[column], 64)
		if err == nil && v <= 0 {
			err = fmt.Errorf("perftest measured %v: %s", v, lines[i+1])
		}
		return v, err
	}
	return 0, fmt.Errorf("no result in: %s", tail(out))
}

// ours runs rdmabench and picks a value of its JSON.
func ours(e env, pick func(rdmabenchResult) float64, shim string, args []string, extraEnv ...string) pass {
	return func(ctx context.Context) (float64, error) {
		c, s, err := endpoints()
		if err != nil {
			return 0, err
		}
		port := nextPort()
		side := func(end lab.Endpoint) []string {
			return append([]string{e.rdmabench, args[0], "-d", end.Device, "-p", port, "-json"}, args[1:]...)
		}
		out, err := pairOf(ctx, side(s), append(side(c), s.Addr.String()), append(preload(shim), extraEnv...)...)
		if err != nil {
			return 0, err
		}
		var r rdmabenchResult
		if err := json.Unmarshal(out, &r); err != nil {
			return 0, fmt.Errorf("rdmabench: %w: %s", err, tail(out))
		}
		return pick(r), nil
	}
}

type rdmabenchResult struct {
	Latency struct {
		P50 float64 `json:"p50"`
		Avg float64 `json:"avg"`
	} `json:"lat_us"`
	MiBps   float64 `json:"bw_MiBps"`
	MsgRate float64 `json:"msg_rate"`
}

func p50(r rdmabenchResult) float64   { return r.Latency.P50 }
func mibps(r rdmabenchResult) float64 { return r.MiBps }
