package cluster

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/internal/cachestatus"
)

// before is how long a load goes on before something happens.
const before = 2 * time.Second

// moved has the last of three members leave by SIGTERM and come again, under load. It returns misses, failed operations, the
// 99th percentile in ms of operations with keys that moved, while they moved, and the share of operations in a second
// of before. What is lower of both moves is the last.
func (f *fleet) moved(ctx context.Context) ([]float64, error) {
	c, err := f.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := fill(ctx, c, size); err != nil {
		return nil, err
	}
	a, last := f.members["a"], f.members["c"]
	moving := make([]bool, records)
	for i := range moving {
		moving[i] = c.Server(key(i)).Address() == last.address
	}
	of := func(i int) bool { return moving[i] }
	l := begin(ctx, c)
	defer l.end()
	time.Sleep(before)
	drained := l.now()
	if err := last.drain(ctx); err != nil {
		return nil, err
	}
	if err := a.settled(ctx, servers-1); err != nil {
		return nil, err
	}
	gone := l.now()
	time.Sleep(before)
	joined := l.now()
	if _, err := f.start(servers - 1); err != nil {
		return nil, err
	}
	for s := (&cachestatus.Cluster{}); len(s.Members) < servers; { // until then it only starts
		if s, err = cachestatus.GetCluster(ctx, a.metrics); err != nil {
			return nil, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	member := l.now()
	if err := a.settled(ctx, servers); err != nil {
		return nil, err
	}
	there := l.now()
	misses, failed, err := l.end()
	if err != nil {
		return nil, fmt.Errorf("%d operations failed: %w", failed, err)
	}
	for i := range moving { // the others may be those that come
		moving[i] = moving[i] || c.Server(key(i)).Address() == last.address
	}
	leaving, err := l.p99(drained, gone, of)
	if err != nil {
		return nil, err
	}
	coming, err := l.p99(member, there, of)
	if err != nil {
		return nil, err
	}
	share := min(l.rate(drained, gone)/l.rate(drained-before, drained), l.rate(member, there)/l.rate(joined-before, joined))
	return []float64{float64(misses), float64(failed), max(leaving, coming), share}, nil
}

// silence is how long etcd is stopped.
const silence = time.Minute

// withoutEtcd stops etcd under load, with all members up, and returns misses and failed operations.
func (f *fleet) withoutEtcd(ctx context.Context) (v []float64, err error) {
	c, err := f.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := fill(ctx, c, size); err != nil {
		return nil, err
	}
	l := begin(ctx, c)
	defer l.end()
	if err := f.etcd[0].Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	time.Sleep(silence)
	if err := f.etcd[0].Signal(syscall.SIGCONT); err != nil {
		return nil, err
	}
	time.Sleep(ttl)
	misses, failed, err := l.end()
	if err != nil {
		return nil, fmt.Errorf("%d of %d operations failed: %w", failed, len(l.list), err)
	}
	return []float64{float64(misses), float64(failed)}, nil
}
