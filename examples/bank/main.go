// Command bank moves money between accounts that lie in another host's memory,
// each under a lock of its own, while connections die in the middle of it. An
// auditor locks all accounts from time to time: no money may be gone or made.
//
//	bank serve               # a host with the accounts
//	bank 10.77.0.2 4 10s     # 4 tellers, for ten seconds
//
// It uses the first RDMA device with an active port, or the one that $RDMA_DEVICE
// names.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

const (
	port     = "7474"
	accounts = 8
	opening  = 1000 // of each account
	most     = 16   // tellers
)

var layout = lockoffload.Layout{Slots: accounts, Size: accountSize, Clients: 2 * most}

// key keeps other programs away. A bank that matters has one that is not in its source.
var key = []byte("the bank's front door")

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
		target, err := lockoffload.Listen(pd, ":"+port, lockoffload.ListenConfig{Layout: layout, Key: key, Lease: 500 * time.Millisecond})
		if err != nil {
			return err
		}
		<-ctx.Done()
		return target.Close()
	}
	if len(args) != 3 {
		return errors.New("usage: bank serve, or bank HOST TELLERS TIME")
	}
	n, err1 := strconv.Atoi(args[1])
	length, err2 := time.ParseDuration(args[2])
	if err := errors.Join(err1, err2); err != nil || n < 1 || n > most {
		return fmt.Errorf("1 to %d tellers, and a time: %w", most, err)
	}
	dial := func() (*lockoffload.Client, error) {
		return lockoffload.Dial(ctx, pd, net.JoinHostPort(args[0], port), lockoffload.DialConfig{Key: key, NoAgent: true})
	}
	_, err = open(ctx, os.Stdout, dial, n, length)
	return err
}

// day has the counters of what happened while the bank was open.
type day struct {
	transfers, finished, cut, broken, audits atomic.Int64
}

// open lets n tellers work for the given length of time.
func open(ctx context.Context, out io.Writer, dial func() (*lockoffload.Client, error), n int, length time.Duration) (*day, error) {
	d := &day{}
	auditor, err := dial()
	if err != nil {
		return d, err
	}
	defer auditor.Close()
	for slot := range accounts {
		if err := auditor.Retry(ctx, func() error { return deposit(ctx, auditor, slot) }); err != nil {
			return d, err
		}
	}
	if err := d.audit(ctx, auditor); err != nil {
		return d, err
	}
	var wg sync.WaitGroup
	errs := make([]error, n+1)
	clients := make([]*lockoffload.Client, n)
	for i := range n {
		if clients[i], err = dial(); err != nil {
			return d, err
		}
		defer clients[i].Close()
	}
	work, done := context.WithTimeout(ctx, length)
	defer done()
	for i, c := range clients {
		wg.Go(func() {
			if errs[i] = d.tell(work, ctx, c); errs[i] != nil {
				done()
			}
		})
	}
	wg.Go(func() {
		defer done()
		for work.Err() == nil && errs[n] == nil {
			errs[n] = d.audit(ctx, auditor)
			time.Sleep(length / 100)
		}
	})
	wg.Wait()
	errs = append(errs, d.audit(ctx, auditor))
	fmt.Fprintf(out, "%d transfers, %d ended for clients that were gone, %d connections cut, %d broken in the middle, %d audits\n",
		d.transfers.Load(), d.finished.Load(), d.cut.Load(), d.broken.Load(), d.audits.Load())
	return d, errors.Join(errs...)
}

// deposit opens an account, unless it is open from another day.
func deposit(ctx context.Context, c *lockoffload.Client, slot int) error {
	_, err := c.Update(ctx, slot, func(old []byte) ([]byte, error) {
		if len(old) > 0 {
			return append([]byte{}, old...), nil
		}
		return account{balance: opening}.encode(), nil
	})
	return err
}

// tell makes transfers until work ends. Now and then its own connection is cut,
// at any point; it comes back as another client.
func (d *day) tell(work, ctx context.Context, c *lockoffload.Client) error {
	for work.Err() == nil {
		if rand.N(10) == 0 {
			time.AfterFunc(rand.N(5*time.Millisecond), func() { _ = c.QP().ToError() })
			d.cut.Add(1)
		}
		from := rand.N(accounts)
		to := (from + 1 + rand.N(accounts-1)) % accounts
		err := d.transfer(ctx, c, from, to, rand.Int64N(100))
		switch {
		case err == nil:
			d.transfers.Add(1)
		case lockoffload.IsConnectionError(err):
			// The next client that locks the accounts ends the transfer.
			d.broken.Add(1)
			if err := c.Redial(ctx); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return nil
}

func (d *day) transfer(ctx context.Context, c *lockoffload.Client, from, to int, amount int64) error {
	return d.locked(ctx, c, []int{from, to}, func(b *books) error {
		t := transfer{rand.Uint64() | 1, uint32(from), uint32(to), amount}
		if b.accounts[from].balance < amount {
			return nil
		}
		return b.carryOut(ctx, t.steps(b.accounts[from], b.accounts[to]))
	})
}

// audit counts the money in all accounts.
func (d *day) audit(ctx context.Context, c *lockoffload.Client) error {
	return c.Retry(ctx, func() error { return d.count(ctx, c) })
}

func (d *day) count(ctx context.Context, c *lockoffload.Client) error {
	all := make([]int, accounts)
	for i := range all {
		all[i] = i
	}
	return d.locked(ctx, c, all, func(b *books) error {
		sum := int64(0)
		for _, a := range b.accounts {
			sum += a.balance
		}
		if sum != accounts*opening {
			return fmt.Errorf("audit: %d in the bank, %d were paid in", sum, accounts*opening)
		}
		d.audits.Add(1)
		return nil
	})
}
