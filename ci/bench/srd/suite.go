// Package srd is the suite of package srd: reliable datagrams beside perftest's plain
// ones, libfabric's reliable ones, and RC where packets are lost.
package srd

import (
	"context"
	"slices"

	"github.com/goverbs/goverbs/ci/bench/internal/harness"
	"github.com/goverbs/goverbs/ci/bench/internal/rig"
	"github.com/goverbs/goverbs/ci/bench/measure"
	"github.com/goverbs/goverbs/srd"
)

var (
	instructions = []string{harness.Instructions}
	both         = harness.Both
)

// Suite is what is measured on one wire.
func Suite(e harness.Env) []harness.Benchmark {
	lat := harness.Figure{Name: "pingpong_64B", Unit: "us", Target: measure.AtMost(1.25)}
	rxd := harness.Figure{Name: "pingpong_64B_vs_rxd", Unit: "us", Target: measure.AtMost(0.5)}
	rate := harness.Figure{Name: "rate_1KiB", Unit: "MiB/s", Target: measure.AtLeast(0.8)}
	shim := []string{}
	if e.Clock == harness.Instructions && e.Shim != "" {
		shim = append(shim, "LD_PRELOAD="+e.Shim) // for C: verbs gives the only CPU up by itself when it polls in vain
	}
	calm := []string{rig.Calm, "GOMAXPROCS=1"}
	spare := []string{rig.Calm, "GOMAXPROCS=4"} // a list is posted by calls that the runtime's monitor takes the last P for
	pingpong := rig.ByRoles("srd-echo", "srd-pingpong", calm...)
	bandwidth := harness.Side{Name: "ib_send_bw -c UD", Run: rig.Perftest("ib_send_bw", rig.BWAverage,
		[]string{"-c", "UD", "-s", "1024", "-n", "1024", "-t", "128", "-r", "512", "-Q", "32", "-l", "32"}, shim...)}
	list := []harness.Benchmark{
		harness.Compare(lat, instructions, pingpong,
			harness.Side{Name: "ib_send_lat -c UD", Run: rig.Perftest("ib_send_lat", rig.LatTypical, []string{"-c", "UD", "-s", "64", "-n", "500"}, shim...)}),
		harness.Compare(rxd, instructions, pingpong, harness.Side{Name: "fi_pingpong verbs;ofi_rxd", Run: fabric(shim...)}),
		harness.Compare(rate, instructions, rig.ByRoles("srd-sink", "srd-rate", spare...), bandwidth),
	}
	return slices.Concat(list, losses(), firstMessages(), []harness.Benchmark{tails(), incast(), allocations()})
}

// Ecmp is what four links tell.
func Ecmp(harness.Env) []harness.Benchmark { return ecmp() }

// Roles are what passes run as processes of their own.
var Roles = map[string]rig.Role{
	"srd-echo": serve(srd.Config{}, echo), "srd-pingpong": client(srd.Config{}, pingPong(rounds, rig.Timed)),
	"srd-polling-echo": serve(polling, echo), "srd-polling-pingpong": client(polling, pingPong(polledRounds, mean)),
	"srd-sink": serve(srd.Config{}, drain), "srd-rate": client(srd.Config{}, streamRate),
}

func one(f func(context.Context) (float64, error)) harness.Pass { return harness.One(f) }
