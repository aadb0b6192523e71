package lockoffload

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// Read locks a slot, reads its record into dst and unlocks it, in one chain.
// dst gets the record's data and is answered cut to its length.
func (c *Client) Read(ctx context.Context, slot int, dst []byte) ([]byte, Result, error) {
	var res Result
	if err := c.begin(ctx, slot, "read"); err != nil {
		return nil, res, err
	}
	defer c.leave()
	_, err := c.retry(ctx, slot, &res, true, c.cfg.Retry.Tries)
	if err != nil {
		return nil, res, opError("read", slot, err)
	}
	version, data, err := c.record()
	if err != nil {
		return nil, res, opError("read", slot, err)
	}
	if len(data) > len(dst) {
		return nil, res, opError("read", slot, fmt.Errorf("%w: %d bytes do not fit in %d", ErrConfig, len(data), len(dst)))
	}
	res.Version = version
	return dst[:copy(dst, data)], res, nil
}

// Update locks a slot and reads its record, lets change make the new data, and
// posts the WRITE and the unlock without waiting for them: their outcome is
// reported by the next call or by [Client.Flush]. change gets data that is
// valid until it returns; its error leaves the record as it is and is answered.
func (c *Client) Update(ctx context.Context, slot int, change func(old []byte) ([]byte, error)) (Result, error) {
	var res Result
	if err := c.begin(ctx, slot, "update"); err != nil {
		return res, err
	}
	defer c.leave()
	tag, err := c.retry(ctx, slot, &res, false, c.cfg.Retry.Tries)
	if err != nil {
		return res, opError("update", slot, err)
	}
	version, old, err := c.record()
	var data []byte
	if err == nil {
		data, err = change(old)
	}
	if err == nil && len(data) > c.cfg.Layout.Size {
		err = fmt.Errorf("%w: %d bytes of data, slots have %d", ErrConfig, len(data), c.cfg.Layout.Size)
	}
	if err != nil {
		if uerr := c.unlock(slot, tag); uerr != nil {
			err = fmt.Errorf("%w; unlock: %w", err, uerr)
		}
		return res, opError("update", slot, err)
	}
	at := atRead + c.cfg.Layout.copyStride()
	n := encode(c.mr.Bytes()[at:], version+1, data)
	c.batch.Write(0, 0, c.recordAt(slot), c.mr.SGE(at, n))
	if err := c.unlock(slot, tag); err != nil {
		return res, opError("update", slot, err)
	}
	res.Version = version + 1
	return res, nil
}

func (c *Client) begin(ctx context.Context, slot int, op string) error {
	if slot < 0 || slot >= c.cfg.Layout.Slots {
		return opError(op, slot, ErrConfig)
	}
	if err := c.enter(ctx); err != nil {
		return opError(op, slot, err)
	}
	return nil
}

// unlock posts what is in the batch and an unlock command behind it.
func (c *Client) unlock(slot int, tag uint64) error {
	c.batch.CmpSwap(0, verbs.Signaled, c.lockAt(slot), tag, 0, c.mr.SGE(atUnlock, 8))
	if err := c.post(1); err != nil {
		return err
	}
	c.unlocking, c.unlockSlot = tag, slot
	return nil
}

func (c *Client) record() (version uint64, data []byte, err error) {
	return decode(c.mr.Bytes()[atRead:][:headerSize+c.cfg.Layout.Size])
}

// retry issues lock command and READ, with the unlock command in the same
// chain when release is set, until the lock was free. A torn record under
// release is tried again; without it the caller holds the lock and judges.
func (c *Client) retry(ctx context.Context, slot int, res *Result, release bool, tries int) (uint64, error) {
	for {
		res.Tries++
		tag := c.tag()
		c.batch.CmpSwap(0, 0, c.lockAt(slot), 0, tag, c.mr.SGE(atLock, 8))
		flags := verbs.Signaled
		if release {
			flags = 0
		}
		c.batch.Read(0, flags, c.recordAt(slot), c.mr.SGE(atRead, headerSize+c.cfg.Layout.Size))
		if release {
			c.batch.CmpSwap(0, verbs.Signaled, c.lockAt(slot), tag, 0, c.mr.SGE(atUnlock, 8))
		}
		if err := c.post(1); err != nil {
			return 0, err
		}
		if err := c.wait(ctx); err != nil {
			return 0, c.abandon(slot, tag, err)
		}
		got := c.word(atLock) == 0
		c.back.note(!got)
		if got {
			c.count(func(s *Stats) { s.Locked++ })
			if !release {
				return tag, nil
			}
			if c.word(atUnlock) != tag {
				c.count(func(s *Stats) { s.Lost++ })
				return 0, ErrLost
			}
			if _, _, err := c.record(); err == nil {
				return tag, nil
			}
			c.count(func(s *Stats) { s.Torn++ })
		} else {
			c.count(func(s *Stats) { s.Failed++ })
		}
		if tries > 0 && res.Tries >= tries {
			if got {
				return 0, ErrRecord
			}
			return 0, ErrNotAcquired
		}
		if err := c.sleep(ctx); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrNotAcquired, err)
		}
	}
}

// abandon gives up on a chain whose replies were not awaited. The lock command
// may still succeed, so an unlock command follows it; where it did not, the
// tag does not match and nothing happens.
func (c *Client) abandon(slot int, tag uint64, cause error) error {
	if c.broken != nil {
		return c.broken
	}
	c.batch.CmpSwap(0, verbs.Signaled, c.lockAt(slot), tag, 0, c.mr.SGE(atCancel, 8))
	if err := c.post(1); err != nil {
		c.broken = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		return c.broken
	}
	return fmt.Errorf("%w: %w", ErrNotAcquired, cause)
}
