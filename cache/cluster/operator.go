package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/goverbs/goverbs/cache/internal/place"
)

// operatorTimeout is how long an operator waits for one member of etcd, and for an etcd that has stopped to reply.
const operatorTimeout = 5 * time.Second

// stalled is for how long no shard of a member has moved when an operator stops to wait for it.
const stalled = time.Minute

// SetDrain has a member hand over all its shards, or take its share again, as an operator wants it. The member stays one, and so
// does its next life, until that is taken back. It returns when the shards of that member have moved. It returns an error
// if ctx ends before, etcd does not reply any more, or no shard has moved for a minute; then they go on to move if they
// can. It returns [ErrLast] if there is no other member for them, also if the last one has gone meanwhile.
// Progress is called with the number of shards that the member still has. Of the configuration it needs the name and
// what is of etcd.
func SetDrain(ctx context.Context, cfg Config, id string, drain bool, progress func(shards int)) error {
	cfg.defaults()
	if err := cfg.checkEtcd(); err != nil {
		return err
	}
	s := openStore(&cfg, operatorTimeout)
	defer s.close()
	v, err := s.read(ctx)
	if err != nil {
		return err
	}
	if err := v.canDrain(id, drain); err != nil {
		return fmt.Errorf("cluster %s: %w", cfg.Name, err)
	}
	key := s.prefix + drainKey + id
	op := clientv3.OpDelete(key)
	if drain {
		op = clientv3.OpPut(key, "")
	}
	if _, err := s.do(ctx, nil, nil, op); err != nil {
		return err
	}
	w := operatorWait{id: id, drain: drain}
	for begun := time.Now(); ; {
		v, err := s.read(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		shards, over, err := w.look(v, err, time.Since(begun))
		if shards >= 0 {
			progress(shards)
		}
		if err != nil {
			return fmt.Errorf("cluster %s: %w", cfg.Name, err)
		}
		if over {
			return nil
		}
		select {
		case <-time.After(cfg.own().Beat()):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// operatorWait is what an operator waits for.
type operatorWait struct {
	id    string
	drain bool

	shards  int           // that the member had last
	changed time.Duration // when that number changed
	replied time.Duration // when etcd replied last
}

// look takes what was read at a time since the begin. It returns how many shards the member has, or -1, and whether
// nothing is left to wait for.
func (w *operatorWait) look(v *view, err error, now time.Duration) (shards int, over bool, _ error) {
	if err != nil {
		if now-w.replied < operatorTimeout {
			return -1, false, nil
		}
		return -1, false, err
	}
	w.replied = now
	me := v.member(w.id)
	if me == nil {
		return -1, false, fmt.Errorf("%s is no member any more", w.id)
	}
	if shards = v.Placement.Owned(me.Number); shards != w.shards {
		w.shards, w.changed = shards, now
	}
	switch {
	case w.drain && shards == 0:
		return shards, true, nil
	case w.drain && !others(v.Placement, me.Number):
		return shards, false, fmt.Errorf("%s has %d shards: %w", w.id, shards, ErrLast)
	case !w.drain && me.State == place.Member && !slices.ContainsFunc(v.Placement.Plan(), func(m place.Move) bool { return m.To == me.Number }):
		return shards, true, nil
	case now-w.changed >= stalled:
		return shards, false, fmt.Errorf("%s has %d shards, of which none has moved for %v", w.id, shards, stalled)
	}
	return shards, false, nil
}

// canDrain returns an error if there is no such member, or no other one that takes its shards.
func (v *view) canDrain(id string, drain bool) error {
	var ids []string
	if v.Placement != nil {
		for s := range v.Placement.Members() {
			ids = append(ids, s.ID)
		}
	}
	switch me := v.member(id); {
	case me == nil:
		return fmt.Errorf("no member has the id %q; there are: %s", id, strings.Join(ids, ", "))
	case drain && !others(v.Placement, me.Number):
		return ErrLast
	}
	return nil
}

// member returns the member with an id, or nil.
func (v *view) member(id string) *place.Server {
	if v.Placement != nil {
		for s := range v.Placement.Members() {
			if s.ID == id {
				return s
			}
		}
	}
	return nil
}
