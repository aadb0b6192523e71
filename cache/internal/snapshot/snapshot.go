// Package snapshot is the file that a server leaves its records in when it ends: how it is
// written and read, without files, stores and clocks.
//
//	head     magic 8, format 4, epoch 4, saved 8, CAS 8, flush 8, checksum 8
//	record   key's length 2, attributes 2, value's length 4, client's flags 4, bits 4,
//	         CAS 8, left 8, checksum 8 of these; key, value, checksum 8 of both
//	end      a key's length of 65535, zeros, and in the place of left how many records
//	         there are; checksum 8
//
// Numbers are little endian, checksums XXH3. What is cut off, changed or followed by
// anything is refused as a whole.
package snapshot

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"github.com/goverbs/goverbs/cache/internal/wire"
)

// Head is what a snapshot begins with. Times are in ms.
type Head struct {
	Epoch   uint32 // of the life that wrote it
	Saved   int64  // when it was written, since 1970
	CAS     uint64 // the last number that was given out
	FlushIn uint64 // after which a flush was to come; 0: none
}

// Item is a record. Key and Value of one that was read are good until the next.
type Item struct {
	Key, Value []byte
	Flags      uint32
	Attrs      uint16 // wire.AttrStale and the like
	Fetched    bool
	CAS        uint64
	Left       uint64 // ms until it expires; 0: never
}

// ErrDamaged: the file is not as it was written.
var ErrDamaged = errors.New("snapshot: damaged")

// ErrOtherFormat: the file is of another version, or of another program.
var ErrOtherFormat = errors.New("snapshot: not of this format")

const (
	magic    = 0x1b6568636163_6d72 // "rmcache", escape
	format   = 1
	headSize = 48
	itemSize = 40
	sumSize  = 8
	theEnd   = 1<<16 - 1 // a key's length
	fetched  = 1         // bit
	attrs    = wire.AttrStale | wire.AttrWon | wire.AttrBinaryKey | wire.AttrVivified
)

// Writer writes a snapshot. It is whole after Close.
type Writer struct {
	w *bufio.Writer
	n uint64
	b []byte
}

// NewWriter begins a snapshot.
func NewWriter(w io.Writer, h *Head) (*Writer, error) {
	s := &Writer{w: bufio.NewWriterSize(w, 1<<16)}
	le := binary.LittleEndian
	b := le.AppendUint64(s.b, magic)
	b = le.AppendUint32(b, format)
	b = le.AppendUint32(b, h.Epoch)
	for _, v := range [...]uint64{uint64(h.Saved), h.CAS, h.FlushIn} {
		b = le.AppendUint64(b, v)
	}
	s.b = b
	return s, s.sum()
}

// sum writes what has been put together, and its checksum.
func (s *Writer) sum() error {
	s.b = binary.LittleEndian.AppendUint64(s.b, xxh3.Hash(s.b))
	_, err := s.w.Write(s.b)
	return err
}

// Put adds a record.
func (s *Writer) Put(it *Item) error {
	if len(it.Key) > wire.MaxKey || len(it.Value) > wire.MaxValue {
		return fmt.Errorf("snapshot: key of %d bytes, value of %d", len(it.Key), len(it.Value))
	}
	bits := uint32(0)
	if it.Fetched {
		bits |= fetched
	}
	s.n++
	if err := s.head(len(it.Key), it.Attrs, len(it.Value), it.Flags, bits, it.CAS, it.Left); err != nil {
		return err
	}
	var body xxh3.Hasher
	for _, b := range [][]byte{it.Key, it.Value} {
		_, _ = body.Write(b)
		if _, err := s.w.Write(b); err != nil {
			return err
		}
	}
	_, err := s.w.Write(binary.LittleEndian.AppendUint64(s.b[:0], body.Sum64()))
	return err
}

func (s *Writer) head(key int, attrs uint16, value int, flags, bits uint32, cas, left uint64) error {
	le := binary.LittleEndian
	b := le.AppendUint16(s.b[:0], uint16(key))
	b = le.AppendUint16(b, attrs)
	for _, v := range [...]uint32{uint32(value), flags, bits} {
		b = le.AppendUint32(b, v)
	}
	b = le.AppendUint64(b, cas)
	s.b = le.AppendUint64(b, left)
	return s.sum()
}

// Close ends the snapshot. It does not close what it was written to.
func (s *Writer) Close() error {
	if err := s.head(theEnd, 0, 0, 0, 0, 0, s.n); err != nil {
		return err
	}
	return s.w.Flush()
}

// Reader reads a snapshot.
type Reader struct {
	r *bufio.Reader
	n uint64
	b []byte
}

// NewReader reads the head of a snapshot.
func NewReader(r io.Reader) (*Reader, Head, error) {
	s := &Reader{r: bufio.NewReaderSize(r, 1<<16)}
	b, err := s.take(headSize)
	if err != nil {
		return nil, Head{}, err
	}
	le := binary.LittleEndian
	switch {
	case le.Uint64(b) != magic || le.Uint32(b[8:]) != format:
		return nil, Head{}, ErrOtherFormat
	case !whole(b):
		return nil, Head{}, ErrDamaged
	}
	return s, Head{le.Uint32(b[12:]), int64(le.Uint64(b[16:])), le.Uint64(b[24:]), le.Uint64(b[32:])}, nil
}

// take reads n bytes, which are good until the next call. It takes memory as they come.
func (s *Reader) take(n int) ([]byte, error) {
	const step = 1 << 20
	s.b = s.b[:0]
	for len(s.b) < n {
		from := len(s.b)
		s.b = append(s.b, make([]byte, min(n-from, step))...)
		if _, err := io.ReadFull(s.r, s.b[from:]); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("%w: cut off after %d records", ErrDamaged, s.n)
		} else if err != nil {
			return nil, err
		}
	}
	return s.b, nil
}

// whole reports whether the last bytes are the checksum of the others.
func whole(b []byte) bool {
	n := len(b) - sumSize
	return binary.LittleEndian.Uint64(b[n:]) == xxh3.Hash(b[:n])
}

// Next reads a record. At the end, when the snapshot was whole, it returns [io.EOF].
func (s *Reader) Next(it *Item) error {
	b, err := s.take(itemSize)
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	key, value, bits := int(le.Uint16(b)), int(le.Uint32(b[4:])), le.Uint32(b[12:])
	*it = Item{Attrs: le.Uint16(b[2:]), Flags: le.Uint32(b[8:]), Fetched: bits == fetched, CAS: le.Uint64(b[16:]), Left: le.Uint64(b[24:])}
	switch {
	case !whole(b):
		return s.damaged()
	case key == theEnd:
		return s.end(it, b)
	case key > wire.MaxKey || value > wire.MaxValue || it.Attrs&^attrs != 0 || bits > fetched:
		return s.damaged()
	}
	if b, err = s.take(key + value + sumSize); err != nil {
		return err
	}
	if !whole(b) {
		return s.damaged()
	}
	s.n++
	it.Key, it.Value = b[:key:key], b[key:key+value:key+value]
	return nil
}

func (s *Reader) damaged() error { return fmt.Errorf("%w: record %d", ErrDamaged, s.n) }

// end takes the last piece: there are as many records as it says, and nothing follows.
func (s *Reader) end(it *Item, b []byte) error {
	if it.Left != s.n || !bytes.Equal(b[2:24], make([]byte, 22)) {
		return s.damaged()
	}
	switch _, err := s.r.ReadByte(); {
	case err == nil:
		return fmt.Errorf("%w: something follows the end", ErrDamaged)
	case !errors.Is(err, io.EOF):
		return err
	}
	return io.EOF
}
