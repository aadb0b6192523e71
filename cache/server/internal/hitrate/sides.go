package main

import (
	"bufio"
	"fmt"
	"net"
	"strconv"

	"github.com/goverbs/goverbs/cache/internal/arena"
	"github.com/goverbs/goverbs/cache/internal/evict/lrutest"
	"github.com/goverbs/goverbs/cache/internal/snapshot"
	"github.com/goverbs/goverbs/cache/internal/store"
	"github.com/goverbs/goverbs/cache/internal/wire"
	"github.com/goverbs/goverbs/cache/kv"
)

// value is what all values are a part of.
var value = make([]byte, 1<<20)

func key(r record) []byte { return strconv.AppendInt([]byte("key_"), int64(r.key), 10) }

// local is the server's store without a server.
type local struct {
	*store.Store
	memory int
	now    uint64
}

func newStore(memory int) (*local, error) {
	a, err := arena.New(2 << 20)
	if err != nil {
		return nil, err
	}
	if _, err := a.Add(make([]byte, memory)); err != nil {
		return nil, err
	}
	s, err := store.New(store.Config{
		Epoch: 7, Arena: a, Depth: 8, FreeTable: func([]byte) {},
		AllocTable: func(n int) ([]byte, wire.Where) { return make([]byte, n), wire.Where{Key: 1} },
	})
	return &local{Store: s, memory: memory}, err
}

func (l *local) get(records []record, found []bool) error {
	l.now++
	for i, r := range records {
		found[i] = l.Do(l.now, &wire.Request{Request: kv.Request{Op: kv.OpGet, Key: key(r)}}).Status == kv.OK
	}
	return nil
}

func (l *local) set(records []record) error {
	for _, r := range records {
		if a := l.Do(l.now, &wire.Request{Request: kv.Request{Op: kv.OpSet, Key: key(r), Value: value[:r.size]}}); a.Status != kv.OK {
			return fmt.Errorf("set of %d bytes: status %d", r.size, a.Status)
		}
	}
	return nil
}

// perByte returns the memory for each byte of keys and values.
func (l *local) perByte() (float64, error) {
	stored := 0
	err := l.Save(l.now, func(it *snapshot.Item) error {
		stored += len(it.Key) + len(it.Value)
		return nil
	})
	return float64(l.memory) / float64(stored), err
}

// lru counts a record as the store does, without rounding.
type lru struct {
	*lrutest.LRU
}

func newLRU(memory int) lru { return lru{lrutest.New(memory)} }

func (l lru) get(records []record, found []bool) error {
	for i, r := range records {
		found[i] = l.Get(uint64(r.key), wire.RecordSize(len(key(r)), r.size))
	}
	return nil
}

func (lru) set([]record) error { return nil } // get has done so

// memcached is one that listens on a unix socket.
type memcached struct {
	r *bufio.Reader
	w *bufio.Writer
}

func dialMemcached(socket string) (*memcached, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	return &memcached{bufio.NewReader(conn), bufio.NewWriterSize(conn, 64<<10)}, nil
}

func (m *memcached) get(records []record, found []bool) error {
	for _, r := range records {
		fmt.Fprintf(m.w, "mg %s\r\n", key(r))
	}
	if err := m.w.Flush(); err != nil {
		return err
	}
	for i := range records {
		line, err := m.r.ReadString('\n')
		switch {
		case err != nil:
			return err
		case line != "HD\r\n" && line != "EN\r\n":
			return fmt.Errorf("memcached: get: %q", line)
		}
		found[i] = line == "HD\r\n"
	}
	return nil
}

func (m *memcached) set(records []record) error {
	for _, r := range records {
		fmt.Fprintf(m.w, "ms %s %d\r\n", key(r), r.size)
		_, _ = m.w.Write(value[:r.size])
		_, _ = m.w.WriteString("\r\n")
	}
	if err := m.w.Flush(); err != nil {
		return err
	}
	for _, r := range records {
		line, err := m.r.ReadString('\n')
		switch {
		case err != nil:
			return err
		case line != "HD\r\n" && line != "SERVER_ERROR out of memory storing object\r\n":
			return fmt.Errorf("memcached: set of %d bytes: %q", r.size, line)
		}
	}
	return nil
}
