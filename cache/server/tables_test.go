package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/internal/arena"
	"github.com/goverbs/goverbs/cache/internal/store"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
	"github.com/goverbs/goverbs/verbs"
)

// piece is memory that is not registered.
type piece struct {
	mem    []byte
	closed func(bytes int)
}

func (p *piece) Bytes() []byte        { return p.mem }
func (p *piece) Region() verbs.Region { return verbs.Region{RKey: uint32(len(p.mem))} }
func (p *piece) Close() error {
	if p.closed != nil {
		p.closed(len(p.mem))
	}
	return nil
}

// tablesRig returns a server without a device; its tables are registered by a function of the test's.
func tablesRig(t *testing.T, slow func(bytes int) error) (s *Server, freed func() []int) {
	s = bare(&net.TCPAddr{}, Config{Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Lease: time.Second})
	var mu sync.Mutex
	var all []int
	s.tables.register = func(n int) (memory, error) {
		if err := slow(n); err != nil {
			return nil, err
		}
		return &piece{make([]byte, n), func(bytes int) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, bytes)
		}}, nil
	}
	a, err := arena.New(64 << 10)
	require.NoError(t, err)
	_, err = a.Add(make([]byte, 8<<20))
	require.NoError(t, err)
	s.store, err = store.New(store.Config{Epoch: 1, Arena: a, Depth: 12, AllocTable: s.allocTable, FreeTable: s.freeTable, SoonTable: s.soonTable})
	require.NoError(t, err)
	s.tables.serving = true
	return s, func() []int {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func (s *Server) put(t *testing.T, i int) {
	a, err := s.Do(t.Context(), &kv.Request{Op: kv.OpSet, Key: fmt.Append(nil, i)})
	require.NoError(t, err)
	require.Equal(t, kv.OK, a.Status)
}

// load is how many hundredths of the table's places are taken.
func (s *Server) load() int {
	n := s.Stats()
	return n.Items * 100 / (n.Table / wire.BucketSize * wire.BucketEntries)
}

// putUntilGrowing puts records until a larger table is being registered, and returns how many.
func (s *Server) putUntilGrowing(t *testing.T) int {
	for i := 0; ; i++ {
		s.mu.Lock()
		making := s.tables.making
		s.mu.Unlock()
		if making || t.Failed() {
			return i
		}
		s.put(t, i)
	}
}

// patient is longer than anything here takes.
const patient = time.Minute

// busyDevice takes until finish is closed to register a table that is not quick, and tells when
// it has begun.
func busyDevice(t *testing.T) (slow func(bytes int) error, begun chan int, finish chan struct{}) {
	begun, finish = make(chan int, 1), make(chan struct{})
	return func(n int) error {
		if n > quickTable {
			begun <- n
			select {
			case <-finish:
			case <-time.After(patient):
				t.Error("all wait for the device")
			}
		}
		return nil
	}, begun, finish
}

// While the device is busy with a larger table requests are carried out, changes among them, and none
// of it costs a record.
func TestTableGrowsBesideRequests(t *testing.T) {
	slow, begun, finish := busyDevice(t)
	s, freed := tablesRig(t, slow)
	records := s.putUntilGrowing(t)
	require.False(t, t.Failed())
	require.Equal(t, 2*quickTable, <-begun)
	require.Equal(t, 55, s.load(), "before it is needed")
	for i := range records {
		a, err := s.Do(t.Context(), &kv.Request{Op: kv.OpGet, Key: fmt.Append(nil, i)})
		require.NoError(t, err)
		require.Equal(t, kv.OK, a.Status)
	}
	for s.load() < 66 { // it grows at 65 %
		s.put(t, records)
		records++
	}
	require.Equal(t, quickTable, s.Stats().Table)
	close(finish)
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.store.Tick(s.now(), 100)
		return s.store.Stats().Table == 2*quickTable
	}, patient, time.Millisecond)
	n := s.Stats()
	require.Equal(t, records, n.Items)
	require.Zero(t, n.Evicted)
	require.Equal(t, []int{quickTable}, freed(), "the old table")
	require.NoError(t, s.Close())
	require.Equal(t, []int{quickTable, 2 * quickTable}, freed())
}

// A server that closes meanwhile waits for the device, and leaves nothing.
func TestTableGrowsBesideClose(t *testing.T) {
	slow, begun, finish := busyDevice(t)
	s, freed := tablesRig(t, slow)
	s.putUntilGrowing(t)
	<-begun
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	select {
	case <-closed:
		t.Fatal("memory is still being registered")
	case <-time.After(20 * time.Millisecond):
	}
	close(finish)
	require.NoError(t, <-closed)
	require.ElementsMatch(t, []int{quickTable, 2 * quickTable}, freed())
}

// Where there is no memory it is asked for again, but not with each change.
func TestTableThatCannotGrow(t *testing.T) {
	tried := 0
	s, _ := tablesRig(t, func(n int) error {
		if n > quickTable {
			tried++
			return errors.New("no memory")
		}
		return nil
	})
	s.tables.serving = false // so that it is this goroutine that asks
	for i := 0; tried == 0; i++ {
		s.put(t, i)
	}
	require.Equal(t, 65, s.load())
	for i := range 100 {
		s.put(t, i)
	}
	require.Equal(t, 1, tried)
	s.tables.after = time.Now()
	s.put(t, 0)
	require.Equal(t, 2, tried)
	require.NoError(t, s.Close())
}
