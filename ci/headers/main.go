// Headers builds the module against the rdma-core of several Debian releases
// and architectures, and says in a line each what was built:
//
//	go run ./ci/headers [release/architecture ...]
//	eval "export $(go run ./ci/headers -env bookworm/amd64)"; go test -c ./verbs
//	$(go run ./ci/headers -with trixie/amd64) ./verbs.test
//
// With -env it prints what the go command needs in its environment to build for
// a release, so that the programs run there: an older release than the host's
// has an older C library too. With -with it prints the command that runs a program, built
// for that release or an older one, with the release's libraries and providers.
//
// Nothing is installed: headers and libraries are unpacked into the lab's cache
// ($LAB_CACHE). Another architecture than the host's needs its cross compiler,
// such as package gcc-aarch64-linux-gnu.
//
// Packages cgo and verbs, which alone see what is in the headers, are built. On the host's
// architecture their unit tests run too, with the libraries of the release, the C library
// included; for others the simulated devices (cgo/simhca) are built besides.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/ci/internal/cache"
	"github.com/goverbs/goverbs/ci/internal/debian"
)

// usual are the oldest rdma-core that is supported, the one of the current
// Debian and the newest. That of the host is left out, where everything is built
// and tested.
var usual = []string{"bookworm/amd64", "trixie/amd64", "sid/amd64", "trixie/arm64"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "headers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var print func(target, context.Context, string) (string, error)
	if len(args) > 0 {
		print = map[string]func(target, context.Context, string) (string, error){"-env": target.environment, "-with": target.with}[args[0]]
	}
	if print != nil {
		args = args[1:]
	}
	if len(args) == 0 {
		_, host := debian.Host()
		args = without(usual, host+"/"+runtime.GOARCH)
	}
	var targets []target
	for _, a := range args {
		t, err := parseTarget(a)
		if err != nil {
			return err
		}
		targets = append(targets, t)
	}
	folder, err := cache.Dir()
	if err != nil {
		return err
	}
	for _, t := range targets {
		if print != nil {
			line, err := print(t, ctx, folder)
			if err != nil {
				return err
			}
			fmt.Println(line)
			continue
		}
		start := time.Now()
		done, err := t.build(ctx, folder)
		if err != nil {
			return fmt.Errorf("%s/%s: %w", t.release, t.arch, err)
		}
		fmt.Printf("%s (%.0f s)\n", done, time.Since(start).Seconds())
	}
	return nil
}

func without(targets []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(targets), func(t string) bool { return t == one })
}

// target is what to build against.
type target struct{ release, arch string }

// triplets are the names that Debian has for architectures in paths and names
// of compilers.
var triplets = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

func parseTarget(s string) (target, error) {
	release, arch, ok := strings.Cut(s, "/")
	if !ok || release == "" || triplets[arch] == "" {
		return target{}, fmt.Errorf("no target %q; one is such as trixie/arm64", s)
	}
	return target{release, arch}, nil
}

func (t target) native() bool { return t.arch == runtime.GOARCH }

// compiler returns the C compiler for the target with a release's tree as the
// root of headers and libraries. The libraries are named once more because a
// native compiler looks into the host's own first. An older release's C library
// lacks, for the linker, what is in the dynamic linker beside it: the link to that
// is absolute, and leads to the host's.
func (t target) compiler(tree string) string {
	cc := "gcc"
	if !t.native() {
		cc = triplets[t.arch] + "-gcc"
	}
	return fmt.Sprintf("%s --sysroot=%s -L%s -Wl,--allow-shlib-undefined", cc, tree, t.libraries(tree))
}

func (t target) libraries(tree string) string { return tree + "/usr/lib/" + triplets[t.arch] }
