// Command counter has many clients count in one place, by all the ways in which
// package lockoffload changes remote memory, and compares the end with what was
// counted.
//
//	counter serve                   # a host with the counter
//	counter 10.77.0.2 8 200         # 8 clients, each counts 200 up in each way
//
// It uses the first RDMA device with an active port, or the one that $RDMA_DEVICE
// names.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

const (
	port = "7473"
	most = 32 // clients
)

// One slot: a record that is counted under the lock, and beside it a counter
// without a lock, which is swapped. One more client reads the total at the end.
var layout = lockoffload.Layout{Slots: 1, Size: 8, Clients: most + 1, Swap: 2 * (most + 1)}

// key keeps other programs away. A program that matters has one that is not in its source.
var key = []byte("counters are no secret")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	dev, err := verbs.OpenDefault(verbs.DeviceConfig{})
	if err != nil {
		return err
	}
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	if len(args) == 1 && args[0] == "serve" {
		target, err := lockoffload.Listen(pd, ":"+port, lockoffload.ListenConfig{Layout: layout, Key: key})
		if err != nil {
			return err
		}
		<-ctx.Done()
		return target.Close()
	}
	if len(args) != 3 {
		return errors.New("usage: counter serve, or counter HOST CLIENTS COUNTS")
	}
	n, err1 := strconv.Atoi(args[1])
	each, err2 := strconv.Atoi(args[2])
	if err := errors.Join(err1, err2); err != nil || n < 1 || n > most {
		return fmt.Errorf("1 to %d clients: %w", most, err)
	}
	dial := func(noAgent bool) (*lockoffload.Client, error) {
		return lockoffload.Dial(ctx, pd, net.JoinHostPort(args[0], port), lockoffload.DialConfig{Key: key, NoAgent: noAgent})
	}
	return count(ctx, os.Stdout, dial, n, each)
}

// way is one way to count up by one; up returns how it was done.
type way struct {
	name string
	up   func(ctx context.Context, c *lockoffload.Client) (lockoffload.Result, error)
}

var ways = []way{
	{"Update", update},
	{"Lock, Read, Write, Unlock", locked(lockoffload.Exclusive)},
	{"the same in turn", inTurn},
	{"Do, compare and write", chain},
	{"SwapWrite", swap},
}

func number(b []byte) uint64 {
	if len(b) == 0 { // never written
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}

func next(b []byte) []byte { return binary.LittleEndian.AppendUint64(nil, number(b)+1) }

func update(ctx context.Context, c *lockoffload.Client) (lockoffload.Result, error) {
	return c.Update(ctx, 0, func(old []byte) ([]byte, error) { return next(old), nil })
}

func locked(mode lockoffload.Mode) func(context.Context, *lockoffload.Client) (lockoffload.Result, error) {
	return func(ctx context.Context, c *lockoffload.Client) (lockoffload.Result, error) {
		h, res, err := c.Lock(ctx, 0, lockoffload.LockOptions{Mode: mode})
		if err != nil {
			return res, err
		}
		old, _, err := h.Read(ctx, 0, make([]byte, layout.Size))
		if err == nil {
			_, err = h.Write(ctx, 0, next(old))
		}
		return res, errors.Join(err, h.Unlock(ctx))
	}
}

// inTurn takes the lock in turn, or as locked does if the client has no agent.
func inTurn(ctx context.Context, c *lockoffload.Client) (lockoffload.Result, error) {
	res, err := locked(lockoffload.Fair)(ctx, c)
	if errors.Is(err, lockoffload.ErrNoAgent) && !lockoffload.IsConnectionError(err) {
		return locked(lockoffload.Exclusive)(ctx, c)
	}
	return res, err
}

// chain reads, and writes if no other client did meanwhile.
func chain(ctx context.Context, c *lockoffload.Client) (lockoffload.Result, error) {
	for {
		old, res, err := c.Read(ctx, 0, make([]byte, layout.Size))
		if err != nil {
			return res, err
		}
		res, err = c.Do(ctx, &lockoffload.Chain{Accesses: []lockoffload.Access{
			{Kind: lockoffload.AccessCompare, Version: res.Version},
			{Kind: lockoffload.AccessWrite, Data: next(old)},
		}})
		if !errors.Is(err, lockoffload.ErrVersionMismatch) {
			return res, err
		}
	}
}

func swap(ctx context.Context, c *lockoffload.Client) (lockoffload.Result, error) {
	for {
		old, res, err := c.SwapRead(ctx, 0, make([]byte, layout.Size))
		if err != nil {
			return res, err
		}
		res, err = c.SwapWrite(ctx, 0, res.Version, next(old))
		if !errors.Is(err, lockoffload.ErrVersionMismatch) {
			return res, err
		}
	}
}

// count has n clients count in all ways at the same time, every second one with
// the host's agent.
func count(ctx context.Context, out io.Writer, dial func(noAgent bool) (*lockoffload.Client, error), n, each int) error {
	type tally struct {
		done    int
		unknown int // the connection broke off in the middle
		spent   time.Duration
		forms   map[lockoffload.Protocol]int
	}
	tallies := make([]tally, len(ways))
	for w := range tallies {
		tallies[w].forms = map[lockoffload.Protocol]int{}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make([]error, n)
	before, err := total(ctx, dial)
	if err != nil {
		return err
	}
	start := time.Now()
	for i := range n {
		c, err := dial(i%2 > 0)
		if err != nil {
			return err
		}
		defer c.Close()
		wg.Go(func() {
			for k := range each * len(ways) {
				w := (k + i) % len(ways) // so that all are under way at a time
				began := time.Now()
				res, err := ways[w].up(ctx, c)
				if lockoffload.IsConnectionError(err) {
					// It is unknown whether it was counted: it is not tried again.
					if err := c.Redial(ctx); err != nil {
						errs[i] = fmt.Errorf("client %d: %w", i, err)
						return
					}
					mu.Lock()
					tallies[w].unknown++
					mu.Unlock()
					continue
				}
				if err != nil {
					errs[i] = fmt.Errorf("client %d, %s: %w", i, ways[w].name, err)
					return
				}
				mu.Lock()
				t := &tallies[w]
				t.done++
				t.spent += time.Since(began)
				t.forms[res.Protocol]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	counted, unknown := uint64(0), uint64(0)
	for w, t := range tallies {
		counted, unknown = counted+uint64(t.done), unknown+uint64(t.unknown)
		fmt.Fprintf(out, "%-26s %6d counts, %8v each:", ways[w].name, t.done, (t.spent / time.Duration(max(t.done, 1))).Round(time.Microsecond))
		for f, times := range t.forms {
			fmt.Fprintf(out, "  %d by %v", times, f)
		}
		fmt.Fprintln(out)
	}
	after, err := total(ctx, dial)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d clients counted from %d to %d in %v, %.0f a second\n", n, before, after, took.Round(time.Millisecond), float64(counted)/took.Seconds())
	if unknown > 0 {
		fmt.Fprintf(out, "%d more were cut off, some of them after they had counted\n", unknown)
	}
	if got := after - before; got < counted || got > counted+unknown {
		return fmt.Errorf("%d were counted, and %d perhaps", counted, unknown)
	}
	return nil
}

// total returns the sum of the counts with the lock and without.
func total(ctx context.Context, dial func(noAgent bool) (*lockoffload.Client, error)) (uint64, error) {
	c, err := dial(true)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	sum := uint64(0)
	err = c.Retry(ctx, func() error {
		record, _, err := c.Read(ctx, 0, make([]byte, layout.Size))
		if err != nil {
			return err
		}
		swapped, _, err := c.SwapRead(ctx, 0, make([]byte, layout.Size))
		sum = number(record) + number(swapped)
		return err
	})
	return sum, err
}
