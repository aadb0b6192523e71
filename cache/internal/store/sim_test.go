package store

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
)

// worlds runs worlds one after the other until one breaks, or enough have been run.
func worlds(t *testing.T, r rules, limit int, until time.Time) (reads, hits, followed int, torn uint64, broken error) {
	seed := testseed.New(t)
	for i := 0; i < limit || time.Now().Before(until); i++ {
		w := newWorld(seed+uint64(i), r)
		broken = w.run(400)
		reads, hits, followed, torn = reads+w.reads, hits+w.hits, followed+w.followed, torn+w.torn
		if broken != nil {
			t.Logf("world %d: %v", i, broken)
			return
		}
	}
	return
}

// Writers, evictors and readers with READs that come late and torn. GOVERBS_CACHE_SECONDS is how long
// it takes (the long version: a minute).
func TestReadersWritersEvictors(t *testing.T) {
	length := 400 * time.Millisecond
	if !testing.Short() {
		length = time.Minute
	}
	if s := os.Getenv("GOVERBS_CACHE_SECONDS"); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		length = time.Duration(n) * time.Second
	}
	for name, r := range map[string]rules{
		"quarantine":                      {},
		"quarantine, partial maps":        {budget: 3},
		"the same, what is found is kept": {budget: 2, adopting: true},
		"no maps":                         {probing: true},
		"maps come and go":                {switching: true},
		"the same, of some entries":       {switching: true, budget: 2, adopting: true},
		"quarantine ends at once":         {unattached: true},
		"the same with partial maps":      {unattached: true, budget: 3},
		"the same without maps":           {unattached: true, probing: true},
		"clients say that they are ready": {early: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reads, hits, followed, torn, err := worlds(t, r, 24, time.Now().Add(length)) // of six some have no read behind a tombstone
			require.NoError(t, err)
			t.Logf("%d READs, %d hits, %d after a tombstone, %d refused for their checksum", reads, hits, followed, torn)
			require.Greater(t, hits, 50)
			if !r.unattached { // there tombstones are overwritten when they are free
				require.Greater(t, followed, 0)
			}
			if !r.unattached && !r.early {
				require.Zero(t, torn, "a slot was used again while a READ of it was under way")
			}
		})
	}
}

// The test above sees what it is there for.
func TestReadersFindFlaws(t *testing.T) {
	for name, r := range map[string]rules{
		"no validation":                      {credulous: true},
		"no validation and no quarantine":    {credulous: true, unattached: true},
		"tombstones are not looked at":       {stateless: true},
		"neither checksums nor versions are": {unsummed: true, unattached: true},
		"the server's clock is not asked":    {unclocked: true},
		"torn buckets have no records":       {hasty: true, budget: 1},
		"torn buckets, without maps":         {hasty: true, probing: true},
		"flushes, without maps":              {unflushed: true, probing: true},
		"flushes are over at once":           {unflushed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, _, _, err := worlds(t, r, 400, time.Time{})
			require.Error(t, err)
		})
	}
	t.Run("torn without quarantine", func(t *testing.T) {
		t.Parallel()
		torn := uint64(0)
		for i := 0; i < 500 && torn == 0; i++ {
			w := newWorld(uint64(i), rules{unattached: true})
			require.NoError(t, w.run(400))
			torn = w.torn
		}
		require.NotZero(t, torn)
	})
}
