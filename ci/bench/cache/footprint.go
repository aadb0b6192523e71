package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/cache"
	"golang.org/x/sync/errgroup"
)

// cpu returns the time in nanoseconds that a process's threads have had, except for those that are simulated
// devices.
func (d daemon) cpu() (ns float64, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", d.process.Pid))
	if err == nil && len(files) == 0 {
		err = errors.New("no such process")
	}
	for _, f := range files {
		if name, _ := os.ReadFile(f + "/comm"); strings.TrimSpace(string(name)) == "simhca" {
			continue
		}
		b, rerr := os.ReadFile(f + "/schedstat")
		first, _, _ := strings.Cut(string(b), " ")
		n, perr := strconv.ParseFloat(first, 64)
		if err = errors.Join(err, rerr, perr); err != nil {
			return 0, err
		}
		ns += n
	}
	return ns, err
}

// perGet returns how much CPU a server's process has for each GET, in microseconds. What
// Soft-RoCE and TCP do in interrupts counts for the process that runs at the time: with one
// client that is mostly the client.
func (d daemon) perGet(gets int, pass func() error) (float64, error) {
	before, err := d.cpu()
	if err != nil {
		return 0, err
	}
	for range gets / getBlock {
		if err := pass(); err != nil {
			return 0, err
		}
	}
	after, err := d.cpu()
	return (after - before) / float64(gets) / 1e3, err
}

// live returns how much memory a server of ours has, in bytes, without what it needs no more: when Go's
// collector gets at that is chance, and so is when the kernel gets it back.
func (d daemon) live() (float64, error) {
	if err := d.process.Signal(syscall.SIGUSR1); err != nil {
		return 0, err
	}
	if line, err := d.out.ReadString('\n'); err != nil || strings.TrimSpace(line) != freed {
		return 0, fmt.Errorf("the server said %q: %w", line, err)
	}
	return d.resident()
}

// resident returns how much memory of a process is there, in bytes.
func (d daemon) resident() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", d.process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Pss:" {
			kib, err := strconv.ParseFloat(f[1], 64)
			return 1024 * kib, err
		}
	}
	return 0, errors.New("no Pss in smaps_rollup")
}

const (
	mapFew          = 2_000 // more than a part of a snapshot has: what is needed for those cancels out
	mapMany         = 12_000
	connections     = 32 // and then moreConnections
	moreConnections = 96
)

// mapBytes returns how much memory a client's map takes for each entry: by what the heap
// grows more with a large map than with a small one, and what the client says itself.
func mapBytes(ctx context.Context) ([]float64, error) {
	s, err := newServed()
	if err != nil {
		return nil, err
	}
	defer s.stop()
	small, _, err := s.clientOf(ctx, mapFew)
	if err != nil {
		return nil, err
	}
	large, said, err := s.clientOf(ctx, mapMany)
	return []float64{(large - small) / (mapMany - mapFew), float64(said) / mapMany}, err
}

// clientOf fills the server up to so many entries, and returns by how much the heap grows
// with a client, and how much of it is its map as it says.
func (s *served) clientOf(ctx context.Context, entries int) (bytes float64, said int, err error) {
	g, ctx := errgroup.WithContext(ctx)
	const writers = 32
	for w := range writers {
		g.Go(func() error {
			for i := len(sizes) + w; i < entries; i += writers {
				if err := s.client.Set(ctx, key(1_000_000+i), cache.Item{Value: make([]byte, 8)}, 0); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return 0, 0, err
	}
	if err := s.whole(s.client, entries); err != nil {
		return 0, 0, err
	}
	before := heap()
	c, err := s.dial(cache.Config{})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	err = s.whole(c, entries)
	return heap() - before, c.Stats().MapBytes, err
}

func heap() float64 {
	var m runtime.MemStats
	for range 2 { // what the first one frees, the second one sweeps
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// connectionBytes returns how much more memory the server's process has for each client
// that is connected: what it needs, and all that it has, garbage of their coming included.
func connectionBytes(context.Context) ([]float64, error) {
	s, err := newServedAs(smallRole)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	var clients []*cache.Client
	defer func() {
		for _, c := range clients {
			c.Close()
		}
	}()
	more := func(n int) error {
		for range n {
			c, err := s.dial(cache.Config{})
			if err != nil {
				return err
			}
			clients = append(clients, c)
			if err := s.whole(c, len(sizes)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := more(connections); err != nil { // what grows with the first ones only
		return nil, err
	}
	before, err := s.live()
	if err != nil {
		return nil, err
	}
	if err := more(moreConnections); err != nil {
		return nil, err
	}
	all, err := s.resident()
	if err != nil {
		return nil, err
	}
	after, err := s.live()
	return []float64{(after - before) / moreConnections, (all - before) / moreConnections}, err
}
