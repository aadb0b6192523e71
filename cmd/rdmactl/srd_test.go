package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/srd"
)

// What an endpoint reports is shown, path by path.
func TestSRD(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer l.Close()
	report := srd.Report{Addr: "fe80::1/0x11", PID: 412, Peers: []srd.PeerReport{
		{Addr: "fe80::2/0x12", PeerStats: srd.PeerStats{Established: true, Paths: []srd.PathStats{
			{RoundTrip: 312 * time.Microsecond, Sent: 10, Loss: 0.015}, {Retired: true, Sent: 3}, {Suspect: true, Sent: 1}, {}}}},
		{Addr: "fe80::3/0x13"},
	}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			json.NewEncoder(c).Encode(report)
			c.Close()
		}
	}()
	var out, errOut bytes.Buffer
	require.Zero(t, run(context.Background(), []string{"srd", socket}, &out, &errOut), errOut.String())
	for _, want := range []string{"process 412", "312µs", "1.5%", "retired", "suspect", "unused", "fe80::3/0x13", "no session"} {
		require.Contains(t, out.String(), want)
	}
	require.Equal(t, 1, run(context.Background(), []string{"srd", socket + "x"}, &out, &errOut))
	require.Equal(t, 2, run(context.Background(), []string{"srd"}, &out, &errOut))
}

// Whatever is said at the socket, the terminal is told nothing but text, and numbers that fit.
func TestSRDOfAnotherProgram(t *testing.T) {
	report := srd.Report{Addr: "\x1b[2J\x07fe80::1\n0x11\u202e", Peers: []srd.PeerReport{
		{Addr: "\x1b]0;x\x07\tb", PeerStats: srd.PeerStats{Paths: []srd.PathStats{{Sent: 1, RoundTrip: math.MinInt64, Loss: math.MaxFloat64}}}}}}
	var out bytes.Buffer
	require.NoError(t, srdResult{&report}.text(&out))
	require.Equal(t, 4, strings.Count(out.String(), "\n"), out.String())
	for _, r := range strings.ReplaceAll(out.String(), "\n", "") {
		require.True(t, unicode.IsPrint(r), "%q", r)
	}
}
