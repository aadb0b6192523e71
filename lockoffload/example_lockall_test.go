package lockoffload_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/lockoffload"
	"github.com/goverbs/goverbs/verbs"
)

const accounts = 8

// account is the record of a slot.
type account struct {
	Balance  int64
	Sent     struct{ Number, To, Amount int64 } // the last transfer from here; an amount of 0: it is over
	Received [accounts]int64                    // the number of the last transfer from each account
}

var bank = lockoffload.Layout{Slots: accounts, Size: binary.Size(account{})}

// books are accounts by slot, under their locks.
type books map[int]*page

type page struct {
	*lockoffload.Lock
	account
}

// Money moves between accounts with a lock each. None is lost or made when the client dies between
// its WRITEs of two slots: a transfer is in its source's record until its destination has it, and
// has a number by which that takes it once. The next client that locks the source ends it.
func ExampleClient_LockAll() {
	ctx := context.Background()
	var pd *verbs.PD
	c, err := lockoffload.Dial(ctx, pd, "10.77.0.2:7473", lockoffload.DialConfig{Key: exampleKey})
	if err != nil {
		return
	}
	defer c.Close()
	const from, to, amount = 3, 5, 100
	err = underLocks(ctx, c, []int{from, to}, func(b books) error { return b.transfer(ctx, from, to, amount) })
	fmt.Println(err)
}

// transfer moves money from one account to another.
func (b books) transfer(ctx context.Context, from, to int, amount int64) error {
	source := b[from]
	if source.Balance < amount {
		return errors.New("there is not so much money")
	}
	source.Balance -= amount
	source.Sent.Number++
	source.Sent.To, source.Sent.Amount = int64(to), amount
	if err := source.write(ctx); err != nil {
		return err
	}
	return b.deliver(ctx, from)
}

// deliver gives a destination what a source has sent, unless it has that already.
func (b books) deliver(ctx context.Context, from int) error {
	source := b[from]
	to := b[int(source.Sent.To)]
	if to.Received[from] != source.Sent.Number {
		to.Balance += source.Sent.Amount
		to.Received[from] = source.Sent.Number
		if err := to.write(ctx); err != nil {
			return err
		}
	}
	source.Sent.Amount = 0
	return source.write(ctx)
}

// write returns when the account is in its slot, before another one is touched.
func (p *page) write(ctx context.Context) error {
	b, err := binary.Append(nil, binary.LittleEndian, p.account)
	if err == nil {
		_, err = p.Lock.Write(ctx, 0, b)
	}
	if err == nil {
		err = p.Commit(ctx)
	}
	return err
}

// underLocks calls f with accounts, after it has ended transfers that clients left under way.
func underLocks(ctx context.Context, c *lockoffload.Client, slots []int, f func(books) error) error {
	for {
		also, err := tryUnderLocks(ctx, c, slots, f)
		if err != nil || also < 0 {
			return err
		}
		slots = append(slots, also)
	}
}

// tryUnderLocks returns an account that has to be locked too, since a transfer to it is under way.
func tryUnderLocks(ctx context.Context, c *lockoffload.Client, slots []int, f func(books) error) (also int, err error) {
	held, err := c.LockAll(ctx, slots...)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, lockoffload.UnlockAll(ctx, held)) }()
	b := make(books)
	for _, l := range held {
		p := &page{Lock: l}
		data, _, err := l.Read(ctx, 0, make([]byte, bank.Size))
		if err == nil && len(data) > 0 { // not of an account that was never written
			_, err = binary.Decode(data, binary.LittleEndian, &p.account)
		}
		if err != nil {
			return 0, err
		}
		b[l.Slot()] = p
	}
	for slot, p := range b {
		if p.Sent.Amount == 0 {
			continue
		}
		if to := int(p.Sent.To); b[to] == nil {
			return to, nil
		}
		if err := b.deliver(ctx, slot); err != nil {
			return 0, err
		}
	}
	return -1, f(b)
}
