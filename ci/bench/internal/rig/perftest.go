package rig

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/lab"
)

// Perftest runs one of perftest's programs and picks a column of its result.
func Perftest(program string, column int, args []string, env ...string) harness.Pass {
	warm := sync.OnceValue(func() error { return Warm(program) })
	return harness.One(func(ctx context.Context) (float64, error) {
		if err := warm(); err != nil {
			return 0, err
		}
		c, s, err := Endpoints()
		if err != nil {
			return 0, err
		}
		port := NextPort()
		side := func(e lab.Endpoint) ([]string, error) {
			g, err := GIDIndex(e.Device, e.Addr)
			return append([]string{program, "-F", "-d", e.Device, "-x", g, "-p", port}, args...), err
		}
		server, err := side(s)
		if err != nil {
			return 0, err
		}
		client, err := side(c)
		if err != nil {
			return 0, err
		}
		out, err := Processes(ctx, server, append(client, s.Addr.String()), env...)
		if err != nil {
			return 0, err
		}
		return parsePerftest(out, column)
	})
}

// Columns of perftest's tables.
const (
	LatTypical = 4 // bytes, iterations, min, max, typical (median), ...: microseconds
	BWAverage  = 3 // bytes, iterations, peak, average: MiB/s
	BWRate     = 4 // ..., message rate: million per second
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
	return 0, fmt.Errorf("no result in: %s", Tail(out))
}
