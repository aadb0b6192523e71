//go:build simhca && linux && cgo

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache"
)

// step is an operation of a history on a key. Values are numbers, and each that is stored differs from all others; 0 means
// that there is no record.
type step struct {
	key     int
	kind    string
	value   uint64 // that is stored
	before  uint64 // that a compare and swap replaces
	unknown bool   // the outcome is not known
}

// outcome is what a step has returned.
type outcome struct {
	ok    bool
	value uint64
}

const historyKeys = 16

// register is a record that may be lost.
var register = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		keys := make([][]porcupine.Operation, historyKeys)
		for _, o := range all {
			k := o.Input.(step).key
			keys[k] = append(keys[k], o)
		}
		return keys
	},
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		s, v := input.(step), state.(uint64)
		applies, next := s.apply(v)
		if s.unknown {
			return true, next
		}
		o := output.(outcome)
		switch s.kind {
		case "get":
			return o.value == v, v
		case "increment":
			return o.ok == applies && o.value == next, next
		}
		return o.ok == applies, next
	},
}

// apply reports whether a step changes a value, and to which.
func (s step) apply(v uint64) (applies bool, next uint64) {
	switch s.kind {
	case "lost":
		return true, 0
	case "set":
		return true, s.value
	case "add":
		applies, next = v == 0, s.value
	case "swap":
		applies, next = v == s.before, s.value
	case "increment":
		applies, next = v != 0, v+1
	case "touch":
		applies, next = v != 0, v
	case "delete":
		applies = v != 0
	}
	if !applies {
		next = v
	}
	return applies, next
}

// history has clients that do all kinds of operations with a few keys, and notes what comes of them.
type history struct {
	t       *testing.T
	begun   time.Time
	keys    [][]byte
	stop    context.CancelFunc
	ctx     context.Context
	running sync.WaitGroup
	last    atomic.Uint64 // value
	done    atomic.Int64
	unknown atomic.Int64
	refused atomic.Int64

	mu  sync.Mutex
	all []porcupine.Operation
}

// history begins a history of several clients with as many keys as historyKeys says.
func (f *fleet) history(clients []*cache.Cluster, keys [][]byte) *history {
	f.Helper()
	return f.slowHistory(clients, keys, 2*time.Millisecond)
}

// slowHistory is history of clients that pause for a time at most after each operation.
func (f *fleet) slowHistory(clients []*cache.Cluster, keys [][]byte, pause time.Duration) *history {
	f.Helper()
	ctx, stop := context.WithCancel(f.ctx)
	h := &history{t: f.T, begun: time.Now(), keys: keys, ctx: ctx, stop: stop}
	seed := uint64(time.Now().UnixNano())
	f.Logf("seed %d", seed)
	for id := range 8 {
		rng := rand.New(rand.NewPCG(seed, uint64(id)))
		h.running.Go(func() {
			for ctx.Err() == nil {
				h.once(id, clients[id%len(clients)], rng)
				time.Sleep(time.Duration(rng.IntN(int(pause))))
			}
		})
	}
	return h
}

func (h *history) now() int64 { return int64(time.Since(h.begun)) }

// lost notes that records may be lost from a moment on, once.
func (h *history) lost(since int64) {
	for k := range historyKeys {
		h.add(100, step{key: k, kind: "lost", unknown: true}, since, outcome{}, errors.ErrUnsupported)
	}
}

// never is when an operation ends that may be executed at any time.
const never = 1 << 60

// add adds a step that was called at a time and has ended now, with an error if its outcome is not known.
func (h *history) add(client int, s step, call int64, o outcome, err error) {
	end := h.now()
	if s.unknown = err != nil; s.unknown {
		end = never
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, porcupine.Operation{ClientId: client, Input: s, Call: call, Output: o, Return: end})
}

// once does one operation.
func (h *history) once(id int, c *cache.Cluster, rng *rand.Rand) {
	s := step{key: rng.IntN(historyKeys), value: h.last.Add(1) << 20}
	key := h.keys[s.key]
	// An operation that is given up early is rare: the server may execute it at any time later.
	ctx, cancel := context.WithTimeout(h.ctx, 20*time.Second)
	defer cancel()
	it := cache.Item{Value: strconv.AppendUint(nil, s.value, 10)}
	call := h.now()
	var err error
	o := outcome{}
	switch rng.IntN(10) {
	case 0, 1:
		s.kind, err = "set", c.Set(ctx, key, it, 0)
	case 2:
		s.kind, err = "add", c.Add(ctx, key, it, time.Hour)
	case 3:
		s.kind, err = "delete", c.Delete(ctx, key)
	case 4:
		s.kind = "increment"
		o.value, err = c.Increment(ctx, key, 1)
	case 5:
		s.kind, err = "touch", c.Touch(ctx, key, time.Hour)
	case 6:
		if old, err := c.Get(ctx, key); err == nil {
			s.kind, s.before, it.CAS = "swap", number(old.Value), old.CAS
			call = h.now()
			h.end(id, s, call, o, c.CompareAndSwap(ctx, key, it, 0))
		}
		return
	case 7:
		for _, r := range c.GetMulti(ctx, [][]byte{key, h.keys[(s.key+1)%historyKeys]}, nil) {
			s.kind = "get"
			h.end(id, s, call, outcome{value: number(r.Value)}, r.Err)
			s.key = (s.key + 1) % historyKeys
		}
		return
	default:
		s.kind = "get"
		var old cache.Item
		old, err = c.Get(ctx, key)
		o.value = number(old.Value)
	}
	h.end(id, s, call, o, err)
}

// number returns a value's number, or 0.
func number(b []byte) uint64 {
	n, _ := strconv.ParseUint(string(b), 10, 64)
	return n
}

// end notes the end of a step.
func (h *history) end(id int, s step, call int64, o outcome, err error) {
	o.ok = err == nil
	read := s.kind == "get"
	switch {
	case err == nil || errors.Is(err, cache.ErrNotFound) || errors.Is(err, cache.ErrNotStored) || errors.Is(err, cache.ErrChanged):
		if s.kind == "increment" && err != nil {
			o.value = 0
		}
		h.done.Add(1)
		h.add(id, s, call, o, nil)
	case errors.Is(err, cache.ErrOutcomeUnknown) && !read:
		h.unknown.Add(1)
		h.add(id, s, call, o, err)
	case read || errors.Is(err, cache.ErrUnavailable) || errors.Is(err, cache.ErrMoved): // nothing was changed
		h.refused.Add(1)
		time.Sleep(10 * time.Millisecond)
	case h.ctx.Err() == nil:
		h.t.Errorf("%s of key %d: %v", s.kind, s.key, err)
	default:
		h.add(id, s, call, o, err)
	}
}

// goesOn waits until so many more operations are done.
func (h *history) goesOn(more int64) {
	h.t.Helper()
	till := h.done.Load() + more
	require.Eventually(h.t, func() bool { return h.done.Load() >= till }, time.Minute, time.Millisecond)
}

// check ends the history, and checks that its operations have one order.
func (h *history) check() {
	h.t.Helper()
	h.stop()
	h.running.Wait()
	h.t.Logf("%d operations, of %d more the outcome is not known, %d were refused", h.done.Load(), h.unknown.Load(), h.refused.Load())
	begun := time.Now()
	res := porcupine.CheckOperationsTimeout(register, h.all, time.Minute)
	h.t.Logf("checked in %v", time.Since(begun))
	require.Equal(h.t, porcupine.Ok, res)
}

// A history that is no order of one record is found, and one in which a record may be lost is allowed.
func TestRegister(t *testing.T) {
	at := func(client int, call, end int64, s step, o outcome) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: s, Call: call, Output: o, Return: end}
	}
	get := step{kind: "get"}
	set := func(v uint64) step { return step{kind: "set", value: v} }
	ok := outcome{ok: true}
	for name, c := range map[string]struct {
		history []porcupine.Operation
		legal   bool
	}{
		"read what was set":  {[]porcupine.Operation{at(0, 0, 1, set(5), ok), at(1, 2, 3, get, outcome{value: 5})}, true},
		"older":              {[]porcupine.Operation{at(0, 0, 1, set(5), ok), at(0, 2, 3, set(6), ok), at(1, 4, 5, get, outcome{value: 5})}, false},
		"miss":               {[]porcupine.Operation{at(0, 0, 1, set(5), ok), at(1, 2, 3, get, outcome{})}, false},
		"lost":               {[]porcupine.Operation{at(0, 0, 1, set(5), ok), at(9, 1, never, step{kind: "lost", unknown: true}, outcome{}), at(1, 2, 3, get, outcome{})}, true},
		"lost, and back":     {[]porcupine.Operation{at(0, 0, 1, set(5), ok), at(9, 1, never, step{kind: "lost", unknown: true}, outcome{}), at(1, 2, 3, get, outcome{}), at(1, 4, 5, get, outcome{value: 5})}, false},
		"executed late":      {[]porcupine.Operation{at(0, 0, never, step{kind: "set", value: 5, unknown: true}, outcome{}), at(1, 2, 3, set(6), ok), at(1, 4, 5, get, outcome{value: 5})}, true},
		"swap of another":    {[]porcupine.Operation{at(0, 0, 1, set(5), ok), at(1, 2, 3, step{kind: "swap", before: 4, value: 7}, ok)}, false},
		"swap":               {[]porcupine.Operation{at(0, 0, 1, set(5), ok), at(1, 2, 3, step{kind: "swap", before: 5, value: 7}, ok), at(1, 4, 5, get, outcome{value: 7})}, true},
		"increment":          {[]porcupine.Operation{at(0, 0, 1, set(5), ok), at(1, 2, 3, step{kind: "increment"}, outcome{true, 6})}, true},
		"increment, twice":   {[]porcupine.Operation{at(0, 0, 1, set(5), ok), at(1, 2, 3, step{kind: "increment"}, outcome{true, 7})}, false},
		"add to a record":    {[]porcupine.Operation{at(0, 0, 1, set(5), ok), at(1, 2, 3, step{kind: "add", value: 6}, ok)}, false},
		"delete of none":     {[]porcupine.Operation{at(1, 2, 3, step{kind: "delete"}, ok)}, false},
		"touch of one there": {[]porcupine.Operation{at(0, 0, 1, set(5), ok), at(1, 2, 3, step{kind: "touch"}, outcome{})}, false},
	} {
		require.Equal(t, c.legal, porcupine.CheckOperations(register, c.history), name)
	}
}
