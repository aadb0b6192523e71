package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// program is something that has been written for memcached.
type program struct {
	name string
	run  func(s *setup, ctx context.Context, port int) ([]outcome, error)
	suit bool // it starts its servers itself
}

// programs are those that run, the slowest first. Those with a script beside this file print their
// outcomes in the Test Anything Protocol.
var programs = []program{
	{name: "memcached", run: (*setup).suite, suit: true},
	{name: "memccapable", run: (*setup).capable},
	{name: "libmemcached", run: script("sh", "libmemcached.sh")},
	{name: "gomemcache", run: (*setup).gomemcache},
	{name: "pymemcache", run: (*setup).pymemcache},
	{name: "php", run: script("php", "php.php")},
	{name: "perl", run: script("perl", "perl.pl")},
	{name: "node", run: (*setup).node},
	{name: "exporter", run: (*setup).exporter},
}

// limit is how long a program may take, and each test of memcached's suite.
const limit = 3 * time.Minute

// outcomes runs a program with a server of its own.
func (s *setup) outcomes(ctx context.Context, p program, known differences) ([]outcome, error) {
	if p.suit {
		s.skips = known
		return p.run(s, ctx, 0)
	}
	port, stop, err := s.serve(ctx, p.name)
	if err != nil {
		return nil, err
	}
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return p.run(s, ctx, port)
}

// script returns a program that an interpreter runs with the server's port.
func script(interpreter, name string) func(*setup, context.Context, int) ([]outcome, error) {
	return func(s *setup, ctx context.Context, port int) ([]outcome, error) {
		log, _, _ := strings.Cut(name, ".")
		c := exec.CommandContext(ctx, interpreter, filepath.Join(s.scripts, name), strconv.Itoa(port))
		c.Dir = s.dir
		out, err := s.output(c, log)
		return parseTAP(out, "", err), nil
	}
}

// capable runs libmemcached's test of a server.
func (s *setup) capable(ctx context.Context, port int) ([]outcome, error) {
	out, _ := s.output(exec.CommandContext(ctx, "memccapable", "-a", "-h", "127.0.0.1", "-p", strconv.Itoa(port)), "memccapable")
	return parseCapable(out), nil
}

// suite runs memcached's own tests, those of its source package.
func (s *setup) suite(ctx context.Context, _ int) ([]outcome, error) {
	dir, err := s.source(ctx, "memcached")
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(s.posing)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "memcached-debug"), b, 0o755)
	}
	if err == nil { // limits and ends what a test starts; here the tests are limited
		err = os.WriteFile(filepath.Join(dir, "timedrun"), []byte("#!/bin/sh\nshift\nexec \"$@\"\n"), 0o755)
	}
	if err != nil {
		return nil, err
	}
	// The command that moves memcached's clock is of its test build alone.
	library := filepath.Join(dir, "t/lib/MemcachedTest.pm")
	if b, err = os.ReadFile(library); err != nil {
		return nil, err
	}
	const move = "print $sock \"debugtime $move\\r\\n\";\n    <$sock>;"
	if !strings.Contains(string(b), move) {
		return nil, fmt.Errorf("%s moves the time in another way", library)
	}
	if err := os.WriteFile(library, []byte(strings.ReplaceAll(string(b), move, "select undef, undef, undef, $move;")), 0o644); err != nil {
		return nil, err
	}
	tests, err := filepath.Glob(filepath.Join(dir, "t/*.t"))
	if err != nil {
		return nil, err
	}
	each := make([][]outcome, len(tests))
	var some errgroup.Group
	some.SetLimit(4) // many of them mostly sleep
	for i, t := range tests {
		name := strings.TrimSuffix(filepath.Base(t), ".t")
		if s.skips.skips("memcached", name) {
			continue
		}
		some.Go(func() error {
			one, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			c := exec.CommandContext(one, "perl", "-I.", "t/"+filepath.Base(t))
			c.Dir, c.Env = dir, s.environment()
			group(c)
			out, err := s.output(c, "memcached-"+name)
			each[i] = parseTAP(out, name+": ", err)
			return ctx.Err()
		})
	}
	err = some.Wait()
	return slices.Concat(each...), err
}

// source downloads a source package of the Debian release with the memcached that the gateway follows, and
// unpacks it as its authors have published it.
func (s *setup) source(ctx context.Context, name string) (string, error) {
	apt := filepath.Join(s.dir, "apt")
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(apt, d), 0o755); err != nil {
			return "", err
		}
	}
	list := filepath.Join(apt, "sources.list")
	const line = "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main\n"
	if err := os.WriteFile(list, []byte(line), 0o644); err != nil {
		return "", err
	}
	for _, args := range [][]string{{"update"}, {"source", "--download-only", name}} {
		c := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "Dir::Etc::sourcelist=" + list, "-o", "Dir::Etc::sourceparts=-",
			"-o", "Dir::State::lists=" + apt + "/lists", "-o", "Dir::Cache=" + apt + "/cache", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3"}, args...)...)
		c.Dir = apt
		if _, err := s.output(c, name); err != nil {
			return "", err
		}
	}
	archives, err := filepath.Glob(filepath.Join(apt, name+"_*.orig.tar.*"))
	if err != nil || len(archives) != 1 {
		return "", fmt.Errorf("%d archives of %s", len(archives), name)
	}
	dir := filepath.Join(s.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	_, err = s.output(exec.CommandContext(ctx, "tar", "-xf", archives[0], "-C", dir, "--strip-components=1"), name)
	return dir, err
}

// gomemcache runs the tests of a client of Go, those that need a server.
func (s *setup) gomemcache(ctx context.Context, port int) ([]outcome, error) {
	const module = "github.com/bradfitz/gomemcache@v0.0.0-20260422231931-4d751bb6e37c"
	c := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	c.Dir = s.dir // outside of this module
	out, err := s.output(c, "gomemcache")
	if err != nil {
		return nil, err
	}
	var m struct{ Dir string }
	if err := json.Unmarshal(out, &m); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, "gomemcache")
	if err := os.CopyFS(dir, os.DirFS(m.Dir)); err != nil {
		return nil, err
	}
	test := filepath.Join(dir, "memcache/memcache_test.go")
	b, err := os.ReadFile(test)
	if err != nil {
		return nil, err
	}
	const address = `"localhost:11211"`
	if !strings.Contains(string(b), address) {
		return nil, fmt.Errorf("%s has another address", test)
	}
	b = []byte(strings.ReplaceAll(string(b), address, fmt.Sprintf(`"127.0.0.1:%d"`, port)))
	if err := os.Chmod(test, 0o644); err != nil {
		return nil, err
	}
	if err := os.WriteFile(test, b, 0o644); err != nil {
		return nil, err
	}
	c = exec.CommandContext(ctx, "go", "test", "-json", "-vet=off", "-run", "TestLocalhost", "./memcache")
	c.Dir = dir
	out, err = s.output(c, "gomemcache")
	all, bad := parseGo(out)
	if bad != nil {
		return nil, fmt.Errorf("%w: %w", bad, err)
	}
	return all, nil
}

// pymemcache runs a Python client's integration tests, which are in its package.
func (s *setup) pymemcache(ctx context.Context, port int) ([]outcome, error) {
	results := filepath.Join(s.dir, "pymemcache.xml")
	c := exec.CommandContext(ctx, "/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider", "-q", "--junitxml", results,
		"--server=127.0.0.1", "--port="+strconv.Itoa(port), "-k", "not tls and not benchmark",
		"/usr/lib/python3/dist-packages/pymemcache/test/test_integration.py")
	c.Dir = s.dir
	_, err := s.output(c, "pymemcache")
	b, missing := os.ReadFile(results)
	if missing != nil {
		return nil, fmt.Errorf("%w: %w", missing, err)
	}
	return parseJUnit(b)
}

// node runs the script for npm's memcached.
func (s *setup) node(ctx context.Context, port int) ([]outcome, error) {
	c := exec.CommandContext(ctx, "npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", s.dir, "memcached@2.2.2")
	if _, err := s.output(c, "node"); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(s.scripts, "node.js"))
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, "node.js") // where the module is found
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return nil, err
	}
	c = exec.CommandContext(ctx, "node", path, strconv.Itoa(port))
	c.Dir = s.dir
	out, err := s.output(c, "node")
	return parseTAP(out, "", err), nil
}

// exporter checks that Prometheus's memcached_exporter, which neither Debian nor the Go proxy has,
// would find the server up: it reads what follows as numbers, and says memcached_up 0 without the
// first four.
func (s *setup) exporter(_ context.Context, port int) (all []outcome, err error) {
	check := func(name string, values map[string]string, numbers ...string) {
		for _, n := range numbers {
			o := outcome{test: name + " " + n}
			if _, err := strconv.ParseFloat(values[n], 64); err != nil {
				o.detail = strconv.Quote(values[n]) + " is no number"
			}
			all = append(all, o)
		}
	}
	st, err := stats(port, "stats")
	if err != nil {
		return nil, err
	}
	check("stats", st, "cmd_set", "cas_misses", "cas_hits", "cas_badval",
		"uptime", "time", "cmd_flush", "get_hits", "get_misses", "delete_hits", "delete_misses", "incr_hits", "incr_misses", "decr_hits", "decr_misses",
		"touch_hits", "touch_misses", "rusage_user", "rusage_system", "bytes", "limit_maxbytes", "curr_items", "total_items", "bytes_read", "bytes_written",
		"curr_connections", "total_connections", "rejected_connections", "listen_disabled_num", "evictions", "reclaimed")
	set, err := stats(port, "stats settings")
	check("stats settings", set, "maxconns")
	for _, command := range []string{"stats settings", "stats items", "stats slabs"} {
		o := outcome{test: command}
		if _, err := stats(port, command); err != nil {
			o.detail = err.Error()
		}
		all = append(all, o)
	}
	return all, err
}
