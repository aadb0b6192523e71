package lockoffload

import (
	"context"
	"fmt"
	"slices"
)

// first is the record of calls that name none.
var first = []int{0}

// Read reads record 0 of a slot, see [Client.ReadRecords]. dst gets the data
// and is answered cut to its length.
func (c *Client) Read(ctx context.Context, slot int, dst []byte) ([]byte, Result, error) {
	j, err := c.begin(slot, first)
	if err != nil {
		return nil, Result{}, opError("read", slot, err)
	}
	defer j.drop()
	j.warm.one[0] = dst
	res, err := j.read(ctx, first, j.warm.one[:])
	if err != nil {
		return nil, res, opError("read", slot, err)
	}
	return j.warm.one[0], res, nil
}

// ReadRecords locks a slot, reads records, each into one of dst, and unlocks
// it. The data is what the records had at one moment between call and return.
// One record takes one post ([FormReadChain], or [FormSharedChain] where chains
// of readers were seen to meet); several take one too until the data is here,
// and the unlock command follows ([FormReadHeld]).
func (c *Client) ReadRecords(ctx context.Context, slot int, records []int, dst [][]byte) ([][]byte, Result, error) {
	j, err := c.begin(slot, records)
	if err != nil {
		return nil, Result{}, opError("read", slot, err)
	}
	defer j.drop()
	if len(dst) != len(records) {
		return nil, Result{}, opError("read", slot, fmt.Errorf("%w: %d buffers for %d records", ErrConfig, len(dst), len(records)))
	}
	out := slices.Clone(dst)
	res, err := j.read(ctx, records, out)
	if err != nil {
		return nil, res, opError("read", slot, err)
	}
	return out, res, nil
}

// Update changes record 0 of a slot, see [Client.UpdateRecords].
func (c *Client) Update(ctx context.Context, slot int, change func(old []byte) ([]byte, error)) (Result, error) {
	j, err := c.begin(slot, first)
	if err != nil {
		return Result{Form: FormTwoStep}, opError("update", slot, err)
	}
	defer j.drop()
	j.warm.change = change
	return j.update(ctx, first, j.warm.changeOne)
}

// UpdateRecords locks a slot and reads records, lets change make their new
// data, and posts WRITEs and unlock command without waiting for them:
// [Result.Commit] tells the outcome. change gets data that is valid until it
// returns; a nil entry of its answer leaves that record as it is; its error
// leaves all and is answered. It runs under the lock and must not use the
// client for the same slot. When it panics the lock is given back.
//
// When the client dies in the middle, each record has its old or its new data.
func (c *Client) UpdateRecords(ctx context.Context, slot int, records []int, change func(old [][]byte) ([][]byte, error)) (Result, error) {
	j, err := c.begin(slot, records)
	if err != nil {
		return Result{Form: FormTwoStep}, opError("update", slot, err)
	}
	defer j.drop()
	return j.update(ctx, records, change)
}

// named checks what a call names.
func (c *Client) named(slot int, records []int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.check(slot, records)
}

// check is named under mu.
func (c *Client) check(slot int, records []int) error {
	if c.closed {
		return ErrClosed
	}
	if slot < 0 || slot >= c.l.Slots || len(records) == 0 || len(records)+leastWRs-1 > c.s.line.qp.MaxSendWR() {
		return ErrConfig
	}
	for i, r := range records {
		if r < 0 || r >= c.l.Records || slices.Contains(records[:i], r) {
			return ErrConfig
		}
	}
	return nil
}

// Where read chains met each other, so many reads take the shared form before
// the shorter one is tried again.
const meetings = 64

func (c *Client) meeting(slot int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.meets[slot] == 0 {
		return false
	}
	c.meets[slot]--
	return true
}

func (c *Client) met(slot int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.meets[slot] = meetings
}
