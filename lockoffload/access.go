package lockoffload

import (
	"context"
	"fmt"
	"slices"
)

// Read reads record 0 of a slot, see [Client.ReadRecords]. dst gets the data
// and is answered cut to its length.
func (c *Client) Read(ctx context.Context, slot int, dst []byte) ([]byte, Result, error) {
	out, res, err := c.ReadRecords(ctx, slot, []int{0}, [][]byte{dst})
	if err != nil {
		return nil, res, err
	}
	return out[0], res, nil
}

// ReadRecords locks a slot, reads records, each into one of dst, and unlocks
// it. The data is what the records had at one moment between call and return.
// One record takes one post ([FormReadChain], or [FormSharedChain] where chains
// of readers were seen to meet); several take one too until the data is here,
// and the unlock command follows ([FormReadHeld]).
func (c *Client) ReadRecords(ctx context.Context, slot int, records []int, dst [][]byte) ([][]byte, Result, error) {
	var res Result
	err := c.named(slot, records)
	if err == nil && len(dst) != len(records) {
		err = fmt.Errorf("%w: %d buffers for %d records", ErrConfig, len(dst), len(records))
	}
	if err != nil {
		return nil, res, opError("read", slot, err)
	}
	s := c.session()
	m := &reader{acquire: acquire{tags: &s.tags, records: records, tries: c.cfg.Retry.Tries, reading: true}}
	m.grant.slot = slot
	j, err := c.start(m, slot, len(records))
	if err != nil {
		return nil, res, opError("read", slot, err)
	}
	if len(records) > 1 {
		m.form = FormReadHeld
	} else {
		m.mayShare = func() bool {
			if m.met {
				c.met(slot)
			}
			if !c.meeting(slot) {
				return false
			}
			b := c.tryBit(s, slot)
			if b != nil {
				j.after = func() { c.endShare(b) }
			}
			return b != nil
		}
	}
	// The data is in the machine's memory, which another one gets afterwards.
	out := make([][]byte, len(dst))
	m.deliver = func(i int, cur current) error {
		if len(cur.data) > len(dst[i]) {
			return fmt.Errorf("%w: %d bytes do not fit in %d", ErrConfig, len(cur.data), len(dst[i]))
		}
		out[i] = dst[i][:copy(dst[i], cur.data)]
		return nil
	}
	_, err = j.run(ctx, s)
	res.Tries, res.Form = m.tried, m.form
	if err != nil {
		return nil, res, opError("read", slot, err)
	}
	res.Version = m.version
	return out, res, nil
}

// Update changes record 0 of a slot, see [Client.UpdateRecords].
func (c *Client) Update(ctx context.Context, slot int, change func(old []byte) ([]byte, error)) (Result, error) {
	return c.UpdateRecords(ctx, slot, []int{0}, func(old [][]byte) ([][]byte, error) {
		data, err := change(old[0])
		if data == nil {
			data = []byte{}
		}
		return [][]byte{data}, err
	})
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
	res := Result{Form: FormTwoStep}
	if err := c.named(slot, records); err != nil {
		return res, opError("update", slot, err)
	}
	s := c.session()
	m := &updater{acquire: acquire{tags: &s.tags, records: records, tries: c.cfg.Retry.Tries}, change: change, allowed: s.allowed}
	m.grant.slot = slot
	j, err := c.start(m, slot, len(records))
	if err != nil {
		return res, opError("update", slot, err)
	}
	j.wrote = func() bool { return m.wrote }
	res.Commit, err = j.run(ctx, s)
	res.Tries, res.Version = m.tried, m.version
	if err != nil {
		return res, opError("update", slot, err)
	}
	return res, nil
}

// named checks what a call names.
func (c *Client) named(slot int, records []int) error {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if slot < 0 || slot >= c.l.Slots || len(records) == 0 || len(records)+leastWRs-1 > c.session().line.qp.MaxSendWR() {
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
