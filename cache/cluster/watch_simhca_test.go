//go:build simhca && linux && cgo

package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/goverbs/goverbs/cache/internal/place"
	"github.com/goverbs/goverbs/ci/etcd"
)

// A member hears of beats, and of what else changes, also after the member of etcd has died by which it heard before.
func TestSimulatedWatchGoesOn(t *testing.T) {
	all := etcd.StartThree(t)
	cfg := Config{Name: "test", TTL: time.Second}
	for _, e := range all {
		cfg.Etcd = append(cfg.Etcd, e.URL)
	}
	s := openStore(&cfg, cfg.TTL/4)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	me := place.Server{Life: place.Life{ID: "a", Boot: 7}}
	var beat, changes atomic.Int64
	var told, ends []int64 // revisions of beats, and of ends of the life
	var watching sync.WaitGroup
	watching.Go(func() {
		s.watch(ctx, watcher{
			id:      "b",
			changed: func() { changes.Add(1) },
			beat: func(l place.Life, revision int64) {
				require.Equal(t, me.Life, l)
				told = append(told, revision)
				beat.Store(revision)
			},
		})
	})
	hears := func() {
		t.Helper()
		from, before := s.revision.Load(), changes.Load()
		for beat.Load() <= from || changes.Load() == before {
			_, _ = s.beat(ctx, me, cfg.TTL)
			_ = s.put(ctx, requestsKey, me.ID, request{From: "b"})
			require.NoError(t, ctx.Err())
			time.Sleep(10 * time.Millisecond)
		}
		resp, err := s.do(ctx, nil, nil, clientv3.OpDelete(s.lifeKey(me.Life)))
		require.NoError(t, err)
		ends = append(ends, resp.Header.Revision)
	}
	hears()
	hears() // after the end of the life
	at := s.at.Load()
	all[at].Kill(t)
	for s.at.Load() == at {
		_, _ = s.beat(ctx, me, cfg.TTL)
		require.NoError(t, ctx.Err())
	}
	hears()
	stop()
	watching.Wait()
	for _, end := range ends {
		require.NotContains(t, told, end, "the end of a life is no beat")
	}
	require.NoError(t, s.close())
}
