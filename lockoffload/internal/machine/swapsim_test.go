package machine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/lockoffload/internal/memory"
)

// swapWorld is a slot's memory and clients that swap its private copies. READs
// and WRITEs happen 8 bytes at a time, with those of others between; a READ may
// happen behind the requests that follow it; clients die anywhere, and the next
// one gets their owner number.
type swapWorld struct {
	rng     *rand.Rand
	variant swapVariant
	l       memory.Layout
	mem     []byte
	clients []*swapSimClient
	value   uint64

	written map[uint64][]byte   // by version
	maybe   map[uint64][][]byte // unknown outcomes
	newest  uint64
}

type swapVariant int

const (
	swapSound   swapVariant = iota
	swapOneCopy             // one private copy a client: it may be current
	swapTrusts              // takes what was read without looking at version and checksum
	swapAssumes             // does not look at the pointer after an outcome that it does not know
	swapVariants
)

type swapSimClient struct {
	w       *swapWorld
	owner   uint16
	pointer uint64
	known   bool

	reader *SwapReader
	writer *SwapWriter
	steps  []func() // of the list under way
	data   []byte
	floor  uint64
}

func newSwapWorld(seed uint64, v swapVariant) *swapWorld {
	l := memory.Layout{Slots: 1, Size: 24, Clients: 3, Swap: 6}.WithDefaults()
	w := &swapWorld{rng: rand.New(rand.NewPCG(seed, 3)), variant: v, l: l, mem: make([]byte, l.Bytes()),
		written: map[uint64][]byte{0: {}}, maybe: map[uint64][][]byte{}}
	l.Format(w.mem, 0)
	for i := range 3 {
		w.clients = append(w.clients, &swapSimClient{w: w, owner: uint16(i + 1)})
	}
	return w
}

func (c *swapSimClient) idle() bool { return c.reader == nil && c.writer == nil }

func (c *swapSimClient) begin() error {
	w := c.w
	look := SwapLook{Work: Work{L: w.l, Mem: make([]byte, w.l.LocalSize())}, Pointer: c.pointer, Known: c.known}
	c.floor = w.newest
	if w.rng.IntN(2) == 0 {
		c.reader = &SwapReader{SwapLook: look}
		return c.next(c.reader)
	}
	w.value++
	c.data = bytes.Repeat(binary.LittleEndian.AppendUint64(nil, w.value), 3)
	version := w.newest
	if c.known && w.rng.IntN(2) == 0 {
		version = PointerVersion(c.pointer)
	}
	c.writer = &SwapWriter{SwapLook: look, Owner: c.owner, Version: version, Data: c.data}
	return c.next(c.writer)
}

// next steps the machine and turns its list into steps.
func (c *swapSimClient) next(m Machine) error {
	v, err := m.Step()
	if v == Done {
		return c.ended(err)
	}
	wk := m.Base()
	var late []func()
	for i := range wk.Ops {
		o := &wk.Ops[i]
		switch o.Kind {
		case OpWrite:
			if c.w.variant == swapOneCopy {
				o.Off = c.w.l.SwapOff(0, 2*(int(c.owner)-1))
				wk.Ops[i+1].B = makePointer(2*(int(c.owner)-1), PointerVersion(wk.Ops[i+1].B))
			}
			c.steps = append(c.steps, c.transfer(c.w.mem[o.Off:], wk.Mem[o.At:], o.N)...)
		case OpRead:
			steps := c.transfer(wk.Mem[o.At:], c.w.mem[o.Off:], o.N)
			if c.w.rng.IntN(2) == 0 {
				late = append(late, steps...)
			} else {
				c.steps = append(c.steps, steps...)
			}
		default:
			c.steps = append(c.steps, func() {
				old := binary.LittleEndian.Uint64(c.w.mem[o.Off:])
				binary.LittleEndian.PutUint64(wk.Mem[o.At:], old)
				if o.Kind == OpCmpSwap && old == o.A {
					binary.LittleEndian.PutUint64(c.w.mem[o.Off:], o.B)
				}
			})
		}
	}
	// The completion takes its time too.
	c.steps = append(append(c.steps, late...), func() {})
	return nil
}

func (c *swapSimClient) transfer(dst, src []byte, n int) (steps []func()) {
	for at := 0; at < n; at += 8 {
		steps = append(steps, func() { copy(dst[at:min(at+8, n)], src[at:]) })
	}
	return steps
}

func (c *swapSimClient) Step() error {
	if c.idle() {
		return c.begin()
	}
	if len(c.steps) > 0 {
		c.steps[0]()
		c.steps = c.steps[1:]
		if len(c.steps) > 0 {
			return nil
		}
	}
	if c.writer != nil {
		return c.next(c.writer)
	}
	if r := c.reader; c.w.variant == swapTrusts {
		b := r.Mem[r.L.PairAt():]
		memory.Encode(b, PointerVersion(r.Pointer), bytes.Clone(b[memory.HeaderSize:memory.HeaderSize+24]))
	}
	return c.next(c.reader)
}

// ended checks an operation's answer.
func (c *swapSimClient) ended(err error) error {
	w := c.w
	m := c.reader
	wrote := c.writer
	c.reader, c.writer = nil, nil
	if m != nil {
		c.pointer, c.known, c.data = m.Pointer, m.Known, bytes.Clone(m.Data)
		version := PointerVersion(m.Pointer)
		if err != nil || version < c.floor {
			return fmt.Errorf("read version %d, %d was there before: %w", version, c.floor, err)
		}
		if !w.plausible(version, c.data) {
			return fmt.Errorf("read version %d as %x, which nobody wrote", version, c.data)
		}
		return w.happened(version, c.data)
	}
	c.pointer, c.known = wrote.Pointer, wrote.Known
	version := PointerVersion(c.pointer)
	switch {
	case err == ErrVersionMismatch && c.known && version == wrote.Version:
		return fmt.Errorf("write of version %d was refused for nothing", version+1)
	case err == ErrVersionMismatch:
		return nil
	case err != nil:
		return err
	case version != wrote.Version+1:
		return fmt.Errorf("version %d written after %d", version, wrote.Version)
	}
	return w.happened(version, c.data)
}

// plausible reports whether some client wrote the data under the version.
func (w *swapWorld) plausible(version uint64, data []byte) bool {
	if bytes.Equal(w.written[version], data) {
		return true
	}
	for _, c := range w.clients {
		if c.writer != nil && c.writer.Posted && PointerVersion(c.writer.moved) == version && bytes.Equal(c.data, data) {
			return true
		}
	}
	return slices.ContainsFunc(w.maybe[version], func(m []byte) bool { return bytes.Equal(m, data) })
}

// happened notes data that a client saw or knows to be written.
func (w *swapWorld) happened(version uint64, data []byte) error {
	if was, ok := w.written[version]; ok && !bytes.Equal(was, data) {
		return fmt.Errorf("version %d is %x and %x", version, was, data)
	} else if !ok {
		w.written[version] = bytes.Clone(data)
	}
	w.newest = max(w.newest, version)
	return nil
}

// die ends a client in the middle; nothing of it happens any more.
func (c *swapSimClient) die() {
	if wr := c.writer; wr != nil && wr.Posted {
		v := PointerVersion(wr.moved)
		c.w.maybe[v] = append(c.w.maybe[v], c.data)
	}
	*c = swapSimClient{w: c.w, owner: c.owner, pointer: c.pointer, known: c.known && c.w.variant == swapAssumes}
}

func (w *swapWorld) run(steps int) error {
	for range steps {
		c := w.clients[w.rng.IntN(len(w.clients))]
		if w.rng.IntN(40) == 0 {
			c.die()
			continue
		}
		if err := c.Step(); err != nil {
			return err
		}
	}
	for v := range w.newest {
		if _, known := w.written[v]; !known && len(w.maybe[v]) == 0 {
			return fmt.Errorf("version %d was never written", v)
		}
	}
	return nil
}

func TestSwapSimulated(t *testing.T) {
	onHost(t)
	seeds := uint64(2000)
	if testing.Short() {
		seeds = 200
	}
	versions := uint64(0)
	for seed := range seeds {
		w := newSwapWorld(seed, swapSound)
		require.NoError(t, w.run(3000), "seed %d", seed)
		versions += w.newest
	}
	require.Greater(t, versions, 20*seeds)
}

func TestSwapVariantsFail(t *testing.T) {
	onHost(t)
	for v := swapOneCopy; v < swapVariants; v++ {
		failed := 0
		for seed := range uint64(60) {
			if newSwapWorld(seed, v).run(3000) != nil {
				failed++
			}
		}
		require.Positive(t, failed, "variant %d passes", v)
		t.Logf("variant %d: %d of 60 runs fail", v, failed)
	}
}

func TestSwapDamagedCopy(t *testing.T) {
	w := newSwapWorld(1, swapSound)
	w.mem[w.l.SwapOff(0, 0)] ^= 1
	c := w.clients[0]
	err := error(nil)
	for range 10000 {
		c.known = false
		if err = c.Step(); err != nil {
			break
		}
		if c.writer != nil {
			c.writer, c.steps = nil, nil
		}
	}
	require.ErrorIs(t, err, memory.ErrRecord)
}
