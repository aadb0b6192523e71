package lockoffload

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// first is the record of calls that name none.
var first = []int{0}

// Read reads record 0 of a slot, see [Client.ReadRecords]. dst gets the data
// and is answered cut to its length.
func (c *Client) Read(ctx context.Context, slot int, dst []byte) ([]byte, Result, error) {
	return c.readFirst(ctx, FormRead, slot, dst)
}

// ReadChain is Read in the form of a chain: lock command, READ and unlock command in
// one post. It waits for whoever holds the lock, and makes others wait. The data is
// no better for it.
func (c *Client) ReadChain(ctx context.Context, slot int, dst []byte) ([]byte, Result, error) {
	return c.readFirst(ctx, FormReadChain, slot, dst)
}

func (c *Client) readFirst(ctx context.Context, form Form, slot int, dst []byte) ([]byte, Result, error) {
	j, err := c.begin(ctx, slot, first)
	if err != nil {
		return nil, Result{}, opError("read", slot, err)
	}
	defer j.drop()
	j.warm.one[0] = dst
	res, err := j.readInto(ctx, form, first, j.warm.one[:])
	if err != nil {
		return nil, res, opError("read", slot, err)
	}
	return j.warm.one[0], res, nil
}

// ReadRecords reads records of a slot, each into one of dst. The data is what the
// records had at one moment between call and return, and never from inside of
// another's critical section. It takes one READ and no lock ([FormRead]), unless that
// meets a WRITE, or is late, several times ([FormReadHeld]).
func (c *Client) ReadRecords(ctx context.Context, slot int, records []int, dst [][]byte) ([][]byte, Result, error) {
	j, err := c.begin(ctx, slot, records)
	if err != nil {
		return nil, Result{}, opError("read", slot, err)
	}
	defer j.drop()
	if len(dst) != len(records) {
		return nil, Result{}, opError("read", slot, fmt.Errorf("%w: %d buffers for %d records", ErrConfig, len(dst), len(records)))
	}
	out := slices.Clone(dst)
	res, err := j.readInto(ctx, FormRead, records, out)
	if err != nil {
		return nil, res, opError("read", slot, err)
	}
	return out, res, nil
}

// Update changes record 0 of a slot, see [Client.UpdateRecords]. change answers all of the
// new data: nil is none, and an error leaves the record as it is.
func (c *Client) Update(ctx context.Context, slot int, change func(old []byte) ([]byte, error)) (Result, error) {
	return happened(ctx)(c.UpdateAsync(ctx, slot, change))
}

// UpdateRecords locks a slot and reads records, lets change make their new data, writes
// that and unlocks. It answers when all of it has happened, after two round trips.
//
// change gets data that is valid until it returns; a nil entry of its answer leaves that
// record as it is; its error leaves all and is answered. It runs under the lock and must
// not use the client for the same slot. When it panics the lock is given back.
//
// All records change at one moment. When the client dies in the middle, all have their
// old data, or all their new. [ErrOutcomeUnknown] says that nobody can tell which.
func (c *Client) UpdateRecords(ctx context.Context, slot int, records []int, change func(old [][]byte) ([][]byte, error)) (Result, error) {
	return happened(ctx)(c.UpdateRecordsAsync(ctx, slot, records, change))
}

// happened waits for an update that was posted.
func happened(ctx context.Context) func(Result, error) (Result, error) {
	return func(res Result, err error) (Result, error) {
		if err != nil || res.Commit == nil {
			return res, err
		}
		if err = res.Commit.Wait(ctx); err != nil && ctx.Err() != nil && !errors.Is(err, ErrOutcomeUnknown) {
			err = opErrorf("update", fmt.Errorf("%w: %w", ErrOutcomeUnknown, err))
		}
		return res, err
	}
}

// UpdateAsync is Update, but answers when the WRITE and the unlock command are posted:
// nil does not mean that they were executed. [Result.Commit] tells the outcome.
func (c *Client) UpdateAsync(ctx context.Context, slot int, change func(old []byte) ([]byte, error)) (Result, error) {
	j, err := c.begin(ctx, slot, first)
	if err != nil {
		return Result{Form: FormTwoStep}, opError("update", slot, err)
	}
	defer j.drop()
	j.warm.change = change
	return j.update(ctx, first, j.warm.changeOne)
}

// UpdateRecordsAsync is to UpdateRecords what UpdateAsync is to Update.
func (c *Client) UpdateRecordsAsync(ctx context.Context, slot int, records []int, change func(old [][]byte) ([][]byte, error)) (Result, error) {
	j, err := c.begin(ctx, slot, records)
	if err != nil {
		return Result{Form: FormTwoStep}, opError("update", slot, err)
	}
	defer j.drop()
	return j.update(ctx, records, change)
}

// named checks the context of a call and what it names.
func (c *Client) named(ctx context.Context, slot int, records []int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.check(slot, records)
}

// check is named under mu.
func (c *Client) check(slot int, records []int) error {
	if c.closed {
		return ErrClosed
	}
	if slot < 0 || slot >= c.l.Slots || len(records) == 0 {
		return ErrConfig
	}
	for i, r := range records {
		if r < 0 || r >= c.l.Records || slices.Contains(records[:i], r) {
			return ErrConfig
		}
	}
	return nil
}
