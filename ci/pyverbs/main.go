// Pyverbs runs the tests that rdma-core has of itself (pyverbs) on the simulated
// devices, with the libraries and the Python of a Debian release:
//
//	go run ./ci/pyverbs [release ...]
//
// Nothing is installed: the packages are unpacked into the lab's cache ($LAB_CACHE).
// A test that fails, and one that is skipped for a reason that skipped.txt does not
// have, is an error; so is a reason of that list that no test has any more.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	_ "embed"

	"github.com/goverbs/goverbs/ci/internal/cache"
	"github.com/goverbs/goverbs/ci/internal/debian"
)

// usual are the releases with the oldest rdma-core that is supported and with that of
// the current Debian.
var usual = []string{"bookworm", "trixie"}

// devices are those of $SIMHCA that the tests run on.
var devices = []string{"mlx5", "efa"}

// packages are those of a release that the tests run on, and that the simulation is
// built with.
var packages = []string{"python3-pyverbs", "libibverbs-dev", "libc6-dev", "libgcc-s1"}

//go:embed skipped.txt
var skippedList string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	releases := os.Args[1:]
	if len(releases) == 0 {
		releases = usual
	}
	var failed error
	for _, release := range releases {
		failed = errors.Join(failed, run(ctx, release))
	}
	if failed != nil {
		fmt.Fprintln(os.Stderr, "pyverbs:", failed)
		os.Exit(1)
	}
}

func run(ctx context.Context, release string) error {
	list, err := parseList(skippedList)
	if err != nil {
		return fmt.Errorf("skipped.txt: %w", err)
	}
	folder, err := cache.Dir()
	if err != nil {
		return err
	}
	root, err := debian.Root(ctx, folder, release, runtime.GOARCH, packages...)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "pyverbs")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	s, err := prepare(ctx, root, tmp)
	if err != nil {
		return fmt.Errorf("%s: %w", release, err)
	}
	var failed error
	for _, device := range devices {
		begin := time.Now()
		outcomes, err := s.test(ctx, device)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", release, device, err)
		}
		wrong := list.judge(device, release, outcomes)
		for _, w := range wrong {
			failed = errors.Join(failed, fmt.Errorf("%s, %s: %s", release, device, w))
		}
		fmt.Printf("%s, %s: %s (%.0f s)\n", release, device, count(outcomes), time.Since(begin).Seconds())
	}
	return failed
}

func count(outcomes []outcome) string {
	n := map[string]int{}
	for _, o := range outcomes {
		n[o.what]++
	}
	var out []string
	for _, what := range []string{"ok", "skipped", "failed"} {
		out = append(out, fmt.Sprint(n[what], " ", what))
	}
	return strings.Join(out, ", ")
}
