package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/goverbs/goverbs/ci/internal/debian"
)

// packages are those of a release that the module is built with and runs on.
var packages = []string{"libibverbs-dev", "librdmacm-dev", "libibverbs1", "librdmacm1", "ibverbs-providers", "libnl-3-200", "libnl-route-3-200",
	"libc6", "libc6-dev", "linux-libc-dev", "libgcc-s1"}

// build does all for a target and says what was done.
func (t target) build(ctx context.Context, folder string) (string, error) {
	tree, err := debian.Unpack(ctx, folder, t.release, t.arch, packages...)
	if err != nil {
		return "", err
	}
	version, err := rdmaCore(t.libraries(tree))
	if err != nil {
		return "", err
	}
	g := t.toolchain(tree)
	done := fmt.Sprintf("rdma-core %s (%s/%s): cgo and verbs built", version, t.release, t.arch)
	if !t.native() {
		_, err := g.run(ctx, append([]string{"build", "-tags=netgo,osusergo,simhca"}, nearest...)...)
		return done + " with the simulated devices, none run", err
	}
	loader, err := t.loader(tree)
	if err != nil {
		return "", err
	}
	if _, err := g.run(ctx, append([]string{"test", "-vet=off", "-short", "-count=1", "-exec", loader}, nearest...)...); err != nil {
		return "", err
	}
	return done + ", their unit tests passed", nil
}

// with returns the command that runs a program with a release's libraries.
func (t target) with(ctx context.Context, folder string) (string, error) {
	tree, err := debian.Unpack(ctx, folder, t.release, t.arch, packages...)
	if err != nil {
		return "", err
	}
	loader, err := t.loader(tree)
	if err != nil {
		return "", err
	}
	// libibverbs looks for providers in the host's folder otherwise.
	providers := t.libraries(tree) + "/libibverbs/"
	return fmt.Sprintf("env IBV_DRIVERS=%slibmlx5:%slibefa %s", providers, providers, loader), nil
}

// environment returns what toolchain adds to the environment, quoted for a shell.
func (t target) environment(ctx context.Context, folder string) (string, error) {
	tree, err := debian.Unpack(ctx, folder, t.release, t.arch, packages...)
	if err != nil {
		return "", err
	}
	var out []string
	for _, e := range t.toolchain(tree).env[len(os.Environ()):] {
		name, value, _ := strings.Cut(e, "=")
		out = append(out, fmt.Sprintf("%s='%s'", name, value))
	}
	return strings.Join(out, " "), nil
}

// toolchain is the go command set up for a target.
type toolchain struct{ env []string }

// toolchain uses Go's own resolver and user database: without C in the standard
// library only packages of this module depend on the compiler's flags, and the
// rest is built once for all targets of an architecture.
func (t target) toolchain(tree string) toolchain {
	return toolchain{env: append(os.Environ(), "CC="+t.compiler(tree), "CGO_ENABLED=1", "GOOS=linux", "GOARCH="+t.arch,
		strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -tags=netgo,osusergo"))}
}

func (g toolchain) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = g.env
	// What go started ends with it, and is waited for not much longer.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s%s", args[0], err, problems.Bytes(), out.Bytes())
	}
	return out.String(), nil
}

// nearest are the packages that see types and constants of the headers; all others see what
// cgo and verbs make of them, which is the same everywhere.
var nearest = []string{"./cgo/...", "./verbs"}

// rdmaCore returns the version of the rdma-core that libraries are from:
// libibverbs.so.1.14.56.1 is from 56.1.
func rdmaCore(libraries string) (string, error) {
	name, err := os.Readlink(filepath.Join(libraries, "libibverbs.so.1"))
	if err != nil {
		return "", err
	}
	parts := strings.SplitN(name, ".", 5)
	if len(parts) != 5 {
		return "", fmt.Errorf("%s: no version in that name", name)
	}
	return parts[4], nil
}

// loader returns the command that runs programs with the libraries of a release,
// which may need a newer C library than the host's. The dynamic linker is taken where
// it lies: /lib64's is a link, in older releases an absolute one, to the host's, which
// fits no other C library.
func (t target) loader(tree string) (string, error) {
	for _, name := range []string{"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"} {
		path := filepath.Join(t.libraries(tree), name)
		if _, err := os.Stat(path); err == nil {
			return path + " --library-path " + t.libraries(tree), nil
		}
	}
	return "", errors.New("no dynamic linker in " + tree)
}
