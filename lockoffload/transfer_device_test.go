//go:build linux

package lockoffload_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/ci/lab"
	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/lockoffload"
)

const paidIn int64 = 1000 // to each account

// openBank makes a target with accounts, and a way to dial it.
func openBank(t *testing.T, ctx context.Context) func() *lockoffload.Client {
	_, dial := listen(t, bank, time.Second)
	client := func() *lockoffload.Client {
		c, err := dial(ctx)
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() }) // its connection may be broken
		return c
	}
	require.NoError(t, underLocks(ctx, client(), everyAccount(), func(b books) error {
		for _, p := range b {
			p.Balance = paidIn
			if err := p.write(ctx); err != nil {
				return err
			}
		}
		return nil
	}))
	return client
}

func everyAccount() (slots []int) {
	for i := range accounts {
		slots = append(slots, i)
	}
	return slots
}

// audit requires that no money is gone or made.
func audit(ctx context.Context, c *lockoffload.Client) error {
	return c.Retry(ctx, func() error {
		return underLocks(ctx, c, everyAccount(), func(b books) error {
			sum := int64(0)
			for _, p := range b {
				sum += p.Balance
			}
			if sum != accounts*paidIn {
				return fmt.Errorf("%d in the bank, %d were paid in", sum, accounts*paidIn)
			}
			return nil
		})
	})
}

// A client that finds a transfer left after any of its WRITEs ends it, with the lock of an account
// that it did not ask for.
func TestTransferIsEndedWhereverItWasLeft(t *testing.T) {
	ctx := within(t, stuck)
	c := openBank(t, ctx)()
	for writes := range 4 {
		from, to := 2*writes, 2*writes+1
		require.NoError(t, underLocks(ctx, c, []int{from, to}, func(b books) error {
			source, destination := b[from], b[to]
			source.Balance -= 30
			source.Sent.Number++
			source.Sent.To, source.Sent.Amount = int64(to), 30
			destination.Balance += 30
			destination.Received[from] = source.Sent.Number
			over := *source
			over.Sent.Amount = 0
			for _, p := range []*page{source, destination, &over}[:writes] {
				require.NoError(t, p.write(ctx))
			}
			return nil
		}))
		moved := int64(30 * min(writes, 1))
		require.NoError(t, underLocks(ctx, c, []int{from}, func(b books) error {
			require.Zero(t, b[from].Sent.Amount)
			require.Equal(t, paidIn-moved, b[from].Balance, "after %d WRITEs", writes)
			return nil
		}))
		require.NoError(t, underLocks(ctx, c, []int{to}, func(b books) error {
			require.Equal(t, paidIn+moved, b[to].Balance, "after %d WRITEs", writes)
			return nil
		}))
	}
	require.NoError(t, audit(ctx, c))
}

// bankOpens lets clients transfer money, whose connections are cut now and then, and requires
// that it is all there meanwhile. All is set up before the wire is made a bad one, by spoil.
func bankOpens(t *testing.T, lasts time.Duration, spoil func()) {
	seed := testseed.New(t)
	ctx := within(t, lasts+stuck)
	client := openBank(t, ctx)
	var clients [5]*lockoffload.Client
	for i := range clients {
		clients[i] = client()
	}
	spoil()
	work, done := context.WithTimeout(ctx, lasts)
	defer done()
	var transfers, cut, broken, audits atomic.Int64
	var g errgroup.Group
	for i := range 4 {
		c, rng := clients[i], rand.New(rand.NewPCG(seed, uint64(i)))
		g.Go(func() error {
			defer done()
			for n := 0; work.Err() == nil; n++ {
				if n == 0 || rng.IntN(10) == 0 {
					time.AfterFunc(time.Duration(rng.IntN(5000))*time.Microsecond, func() { _ = c.QP().ToError() })
					cut.Add(1)
				}
				from := rng.IntN(accounts)
				to := (from + 1 + rng.IntN(accounts-1)) % accounts
				amount := rng.Int64N(100)
				err := underLocks(ctx, c, []int{from, to}, func(b books) error {
					return b.transfer(ctx, from, to, min(amount, b[from].Balance))
				})
				if lockoffload.IsConnectionError(err) {
					broken.Add(1)
					err = c.Redial(ctx)
				} else if err == nil {
					transfers.Add(1)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	auditor := clients[4]
	audited := func() error {
		for {
			err := audit(ctx, auditor)
			if !lockoffload.IsConnectionError(err) {
				return err
			}
			if err := auditor.Redial(ctx); err != nil {
				return err
			}
		}
	}
	g.Go(func() error {
		defer done()
		for work.Err() == nil {
			if err := audited(); err != nil {
				return err
			}
			audits.Add(1)
			time.Sleep(lasts / 100)
		}
		return nil
	})
	require.NoError(t, g.Wait())
	require.NoError(t, audited())
	t.Logf("%d transfers, %d connections cut, %d broken in the middle, %d audits", transfers.Load(), cut.Load(), broken.Load(), audits.Load())
	require.NotZero(t, transfers.Load())
	require.NotZero(t, cut.Load())
	require.NotZero(t, audits.Load())
}

// The sum stays while connections are cut in the middle of transfers.
func TestTransfersLoseNoMoney(t *testing.T) {
	lasts := 10 * time.Second
	if testing.Short() {
		lasts = 3 * time.Second
	}
	bankOpens(t, lasts, func() {})
}

// And it stays while the wire loses bursts of packets, doubles them, or loses
// acknowledgements.
func TestTransfersOnABadWire(t *testing.T) {
	lab.RequireTopology(t, "wire")
	lasts := 20 * time.Second
	if testing.Short() {
		lasts = 3 * time.Second
	}
	burst := lab.Impairment{Burst: lab.Burst{Begin: 0.005, End: 0.1}}
	for name, i := range map[string][2]lab.Impairment{
		"bursts":           {burst, burst},
		"duplicates":       {{Duplicate: 0.2}, {Duplicate: 0.2}},
		"acknowledgements": {{}, {Loss: 0.05}},
	} {
		t.Run(name, func(t *testing.T) {
			ends := lab.Require(t, 2)
			for _, e := range ends {
				defer func() { require.NoError(t, lab.Clear(e.Netdev)) }()
			}
			bankOpens(t, lasts, func() {
				for n, e := range ends {
					require.NoError(t, lab.Impair(e.Netdev, i[n]))
				}
			})
		})
	}
}
