// Package wiretest is for tests that hear what a side of the cache sends.
package wiretest

import "github.com/goverbs/goverbs/cache/internal/wire"

// Each calls take for each of the whole messages that b consists of, until one is an error.
func Each(b []byte, take func(kind wire.Kind, message []byte) error) error {
	for len(b) > 0 {
		h, err := wire.ReadHeader(b)
		if err != nil {
			return err
		}
		if h.Length > len(b) {
			return wire.Short
		}
		if err := take(h.Kind, b[:h.Length]); err != nil {
			return err
		}
		b = b[h.Length:]
	}
	return nil
}
