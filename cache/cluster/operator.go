package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/goverbs/goverbs/cache/internal/place"
)

// operatorTimeout is how long an operator waits for one member of etcd.
const operatorTimeout = 5 * time.Second

// SetDrain has a member hand over all its shards, or take its share again, as an operator wants it. The member stays one, and so
// does its next life, until that is taken back. It returns when the shards have moved, or ctx ends; then they go on to move.
// Progress is called with the number of shards that the member still has. Of the configuration it needs the name and
// what is of etcd.
func SetDrain(ctx context.Context, cfg Config, id string, drain bool, progress func(shards int)) error {
	cfg.defaults()
	if err := cfg.checkEtcd(); err != nil {
		return err
	}
	s := openStore(&cfg)
	s.timeout = operatorTimeout
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
	for {
		if v, err := s.read(ctx); err == nil && v.Placement != nil {
			me := v.member(id)
			if me == nil {
				return fmt.Errorf("cluster %s: %s is no member any more", cfg.Name, id)
			}
			shards := v.Placement.Owned(me.Number)
			if progress(shards); drain && shards == 0 || !drain && len(v.Placement.Plan()) == 0 && me.State == place.Member {
				return nil
			}
		}
		select {
		case <-time.After(cfg.own().Beat()):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
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
