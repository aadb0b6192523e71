package main

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed run.py
var script string

// system is a release with its tests unpacked, and with the simulation built for it.
type system struct {
	root, tmp string
	libraries string
	loader    string // the dynamic linker
	script    string
	preload   string
}

func prepare(ctx context.Context, root, tmp string) (*system, error) {
	loaders, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu/ld-linux-*.so.*"))
	if err != nil || len(loaders) != 1 {
		return nil, errors.Join(err, fmt.Errorf("%d dynamic linkers in %s", len(loaders), root))
	}
	s := &system{root: root, tmp: tmp, libraries: filepath.Dir(loaders[0]), loader: loaders[0],
		script: filepath.Join(tmp, "run.py"), preload: filepath.Join(tmp, "simhca.so")}
	if err := os.WriteFile(s.script, []byte(script), 0o600); err != nil {
		return nil, err
	}
	if err := s.unpackTests(); err != nil {
		return nil, err
	}
	sources, err := filepath.Glob("cgo/simhca/*.c")
	if err != nil || len(sources) == 0 {
		return nil, errors.Join(err, errors.New("no cgo/simhca/*.c: run this in the module's root"))
	}
	// The link to the dynamic linker is absolute in older releases, and leads to the host's.
	args := []string{"--sysroot=" + root, "-L" + s.libraries, "-Wl,--allow-shlib-undefined", "-D_GNU_SOURCE", "-O2", "-g", "-Wall",
		"-fno-strict-aliasing", "-fPIC", "-shared", "-o", s.preload}
	args = append(append(args, sources...), "-ldl", "-lpthread")
	if out, err := exec.CommandContext(ctx, "gcc", args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the simulation: %w\n%s", err, out)
	}
	return s, nil
}

// unpackTests makes the tests' folder, of which Debian compresses the larger files.
func (s *system) unpackTests() error {
	from, to := filepath.Join(s.root, "usr/share/doc/rdma-core/tests"), filepath.Join(s.tmp, "tests")
	files, err := os.ReadDir(from)
	if err == nil {
		err = os.Mkdir(to, 0o755)
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(from, f.Name()))
		if err != nil {
			return err
		}
		name, compressed := strings.CutSuffix(f.Name(), ".gz")
		if compressed {
			z, err := gzip.NewReader(bytes.NewReader(text))
			if err != nil {
				return err
			}
			if text, err = io.ReadAll(z); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// outcome is what came of a test.
type outcome struct{ what, test, why string }

// test runs all tests on a device.
func (s *system) test(ctx context.Context, device string) ([]outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	providers := filepath.Join(s.libraries, "libibverbs")
	c := exec.CommandContext(ctx, s.loader, "--library-path", s.libraries, "--preload", s.preload,
		filepath.Join(s.root, "usr/bin/python3"), s.script, s.tmp, device+"_0")
	// libibverbs looks for providers in the host's folder otherwise.
	c.Env = append(os.Environ(), "SIMHCA="+device, "PYTHONHOME="+filepath.Join(s.root, "usr"),
		"IBV_DRIVERS="+filepath.Join(providers, "libmlx5")+":"+filepath.Join(providers, "libefa"))
	c.Dir = s.tmp
	c.WaitDelay = time.Second
	var out, problems bytes.Buffer
	c.Stdout, c.Stderr = &out, &problems
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%w\n%s\n%s", err, out.Bytes(), problems.Bytes())
	}
	var all []outcome
	for line := range strings.Lines(out.String()) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		if len(f) != 3 {
			return nil, fmt.Errorf("%q is no line of run.py", line)
		}
		all = append(all, outcome{f[0], f[1], f[2]})
	}
	return all, nil
}
