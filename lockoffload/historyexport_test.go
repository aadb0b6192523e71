package lockoffload

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// Event is an operation on a record in a history: it read Old, or changed Old
// to New. One that is Blind changed to New whatever was there.
type Event struct {
	Client, Record int
	Update, Blind  bool
	Unknown        bool // whether it happened
	Old, New       uint64
	Call, Return   time.Duration
}

// records is the model of histories: each record is a register.
var records = porcupine.Model{
	Partition: func(h []porcupine.Operation) [][]porcupine.Operation {
		by := map[int][]porcupine.Operation{}
		for _, o := range h {
			n := o.Input.(Event).Record
			by[n] = append(by[n], o)
		}
		return slices.Collect(maps.Values(by))
	},
	Init: func() any { return uint64(0) },
	Step: func(state, input, _ any) (bool, any) {
		e, now := input.(Event), state.(uint64)
		switch {
		case !e.Blind && now != e.Old:
			return e.Unknown, now // it never happened
		case e.Update:
			now = e.New
		}
		return true, now
	},
}

// CheckEvents returns an error unless the records can have done what the history says,
// each operation at one moment between its call and its return.
func CheckEvents(events []Event) error {
	var ops []porcupine.Operation
	for _, e := range events {
		if e.Unknown {
			e.Return = 1 << 60
		}
		ops = append(ops, porcupine.Operation{ClientId: e.Client, Input: e, Call: int64(e.Call), Return: int64(e.Return)})
	}
	switch porcupine.CheckOperationsTimeout(records, ops, 3*time.Minute) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return errors.New("porcupine gave up")
	}
	return errors.New("the history is not linearizable")
}

// BlindUpdate is Update, but posts the WRITE without looking at the lock
// command's reply.
func (c *Client) BlindUpdate(ctx context.Context, slot int, change func(old []byte) ([]byte, error)) error {
	j, err := c.begin(ctx, slot)
	if err != nil {
		return err
	}
	defer j.drop()
	j.accesses = append(j.accesses, machine.Access{Kind: wire.AccessRead}, machine.Access{Kind: wire.AccessWrite})
	j.chain = machine.Chain{Acquire: machine.Acquire{Tags: &j.s.tags, Data: true, Grant: machine.Grant{Slot: slot}}, Accesses: j.accesses}
	j.prepare(&blindAcquire{&j.chain})
	if _, err := j.drive(ctx); err != nil {
		return err
	}
	if err = j.chain.Look(); err == nil {
		err = j.update(change)
	}
	res, err := j.unlock(ctx, err)
	if err != nil {
		return err
	}
	if err := res.Commit.Wait(ctx); !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// blindAcquire takes each lock command for one that found the lock free.
type blindAcquire struct{ *machine.Chain }

func (b *blindAcquire) Step() (machine.Verdict, error) {
	for _, o := range b.Ops {
		if o.Kind == machine.OpCmpSwap && o.A == 0 {
			binary.NativeEndian.PutUint64(b.Mem[o.At:], 0)
		}
	}
	return b.Chain.Step()
}
