package native

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/goverbs/goverbs/ci/bench/measure"
)

// user makes the operation of a goroutine, by its number.
type user func(k int) func(ctx context.Context) error

// together has goroutines carry out operations at the same time, and counts all of them.
func together(goroutines int, u user) operations {
	var fs []func(context.Context) error
	for k := range goroutines {
		fs = append(fs, u(k))
	}
	return func(ctx context.Context, n int) (time.Duration, error) {
		var group sync.WaitGroup
		errs := make([]error, goroutines)
		start := time.Now()
		for k, f := range fs {
			part := n*(k+1)/goroutines - n*k/goroutines
			group.Go(func() {
				for range part {
					if errs[k] = f(ctx); errs[k] != nil {
						return
					}
				}
			})
		}
		group.Wait()
		return time.Since(start), errors.Join(errs...)
	}
}

// rates are rows of several goroutines on one client beside one goroutine, and of two clients on two
// CPUs beside one of them.
func rates(name string, open func(o *opened) (func() (user, error), error)) (list []row) {
	beside := func(goroutines, clients int) func(o *opened) (ours, base operations, err error) {
		return func(o *opened) (ours, base operations, err error) {
			client, err := open(o)
			if err != nil {
				return nil, nil, err
			}
			users := make([]user, clients)
			for i := range users {
				if users[i], err = client(); err != nil {
					return nil, nil, err
				}
			}
			ours = together(goroutines*clients, func(k int) func(context.Context) error { return users[k%clients](k / clients) })
			return ours, together(1, users[0]), nil
		}
	}
	for _, n := range []int{2, 8, 64} {
		r := row{name: fmt.Sprintf("%s_rate_%d", name, n), baseline: "one goroutine", rate: true, open: beside(n, 1)}
		if n == 8 {
			r.target = measure.AtLeast(1)
		}
		list = append(list, r)
	}
	return append(list, row{name: name + "_rate_two_clients", target: measure.AtLeast(1.7), baseline: "one client", rate: true, open: beside(1, 2)})
}
