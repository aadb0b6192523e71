package lockoffload

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/goverbs/goverbs/lockoffload/internal/history"
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

// CheckEvents returns an error unless the records can have done what the history says,
// each operation at one moment between its call and its return.
func CheckEvents(events []Event) error {
	var ops []porcupine.Operation
	for _, e := range events {
		o := history.Op{Record: e.Record, Unit: e.Record, Update: e.Update, Blind: e.Blind, Unknown: e.Unknown, Old: e.Old, New: e.New}
		if e.Unknown {
			e.Return = 1 << 60
		}
		ops = append(ops, porcupine.Operation{ClientId: e.Client, Input: o, Call: int64(e.Call), Return: int64(e.Return)})
	}
	switch porcupine.CheckOperationsTimeout(history.Model, ops, 3*time.Minute) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return errors.New("porcupine gave up")
	}
	return history.ErrHistory
}

// BlindUpdate is Update, but posts the WRITE without looking at the lock
// command's reply.
func (c *Client) BlindUpdate(ctx context.Context, slot int, change func(old []byte) ([]byte, error)) error {
	s := c.session()
	m := &machine.Chain{Acquire: machine.Acquire{Tags: &s.tags, Data: true, Grant: machine.Grant{Slot: slot}}, Allowed: s.allowed}
	m.Accesses = []machine.Access{{Kind: wire.AccessRead}, {Kind: wire.AccessWrite}}
	m.Change = func(a []machine.Access) (err error) {
		a[1].Data, err = change(a[0].Data)
		return err
	}
	j, err := c.start(&blindUpdater{m}, slot)
	if err != nil {
		return err
	}
	p, err := j.run(ctx, s)
	if err != nil {
		return err
	}
	if err := p.Wait(ctx); !errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// blindUpdater takes each lock command for one that found the lock free.
type blindUpdater struct{ *machine.Chain }

func (b *blindUpdater) Step() (machine.Verdict, error) {
	for _, o := range b.Ops {
		if o.Kind == machine.OpCmpSwap && o.A == 0 {
			binary.NativeEndian.PutUint64(b.Mem[o.At:], 0)
		}
	}
	return b.Chain.Step()
}
