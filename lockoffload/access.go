package lockoffload

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/lockoffload/internal/machine"
	"github.com/goverbs/goverbs/lockoffload/internal/wire"
)

// Read reads record 0 of a slot. The data is what the record had at one moment between
// call and return, and never from inside of another's critical section. It takes one READ
// and no lock ([ProtocolRead]), unless that meets a WRITE, or is late, several times
// ([ProtocolReadLocked]). dst gets the data, at most [Layout].Size bytes, and is
// returned cut to its length; a dst that is too short is [ErrConfig]. [Client.Do] reads
// several records, or under the lock.
func (c *Client) Read(ctx context.Context, slot int, dst []byte) ([]byte, Result, error) {
	j, err := c.begin(ctx, slot)
	if err != nil {
		return nil, Result{}, opError("read", slot, err)
	}
	defer j.drop()
	j.accesses = append(j.accesses, machine.Access{Kind: wire.AccessRead, Data: dst[:0:len(dst)]})
	res, err := j.read(ctx, 0)
	data := j.accesses[0].Data
	if err == nil && len(data) > len(dst) {
		err = fmt.Errorf("%w: %d bytes do not fit in %d", ErrConfig, len(data), len(dst))
	}
	if err != nil {
		return nil, res, opError("read", slot, err)
	}
	return dst[:len(data)], res, nil
}

// Update locks a slot and reads record 0, has change make its new data, writes that and
// unlocks. It returns when all of it has happened, after two round trips. [Client.Do]
// changes several records, or returns one round trip earlier.
//
// change gets data that is valid until it returns, and returns all of the new data: nil is
// none, and an error, which Update returns, leaves the record as it is. It runs under the
// lock and must not use the client for the same slot. When it panics the lock is given
// back. [ErrOutcomeUnknown] says that the record has its old data or its new.
func (c *Client) Update(ctx context.Context, slot int, change func(old []byte) ([]byte, error)) (Result, error) {
	j, err := c.begin(ctx, slot)
	if err != nil {
		return Result{Protocol: ProtocolTwoStep}, opError("update", slot, err)
	}
	defer j.drop()
	j.accesses = append(j.accesses, machine.Access{Kind: wire.AccessRead}, machine.Access{Kind: wire.AccessWrite})
	res, err := j.lock(ctx, c.cfg.Retry.Tries)
	if err == nil {
		if err = j.chain.Look(); err == nil {
			err = j.update(change)
		}
		res, err = j.unlock(ctx, err)
	}
	if err == nil {
		err = j.outcome(ctx, &res)
	}
	if err != nil {
		return res, opError("update", slot, err)
	}
	return res, nil
}

// update has the change of [Client.Update] make the new data of record 0.
func (j *job) update(change func(old []byte) ([]byte, error)) error {
	j.chain.View()
	returned := false
	defer j.unlockUnless(&returned)
	data, err := change(j.accesses[0].Data)
	returned = true
	if data == nil {
		data = []byte{}
	}
	j.accesses[1].Data = data
	return err
}

// named checks the context of a call and the slot that it names.
func (c *Client) named(ctx context.Context, slot int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.check(slot)
}

// check checks the slot and that the client is open. mu must be held.
func (c *Client) check(slot int) error {
	if c.closed {
		return ErrClosed
	}
	if slot < 0 || slot >= c.l.Slots {
		return ErrConfig
	}
	return nil
}
