// Package initramfs writes the small root file system that a kernel boots
// from: cpio archives in the "newc" format, several of which may follow one
// another in one file.
package initramfs

import (
	"fmt"
	"io"
)

// Writer writes one archive.
type Writer struct {
	w     io.Writer
	inode int
	err   error
}

func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Dir adds a folder.
func (w *Writer) Dir(name string) { w.entry(name, 0o040755, nil) }

// File adds a file; mode has its permission bits.
func (w *Writer) File(name string, mode int, data []byte) { w.entry(name, 0o100000|mode, data) }

// Close ends the archive and answers the first error of all.
func (w *Writer) Close() error {
	w.entry("TRAILER!!!", 0, nil)
	return w.err
}

// entry writes header, name and data, each padded to four bytes; all numbers
// are eight hexadecimal digits.
func (w *Writer) entry(name string, mode int, data []byte) {
	w.inode++
	w.printf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", w.inode, mode, 0, 0, 1, 0,
		len(data), 0, 0, 0, 0, len(name)+1, 0)
	w.printf("%s\x00", name)
	w.pad(110 + len(name) + 1)
	w.write(data)
	w.pad(len(data))
}

func (w *Writer) pad(n int) { w.write(make([]byte, -n&3)) }

func (w *Writer) printf(format string, args ...any) { w.write(fmt.Appendf(nil, format, args...)) }

func (w *Writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
	}
}
