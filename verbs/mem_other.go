//go:build !linux

package verbs

func mapMemory(int, bool) ([]byte, error) { return nil, ErrUnsupported }
func unmapMemory([]byte) error            { return ErrUnsupported }
func memlockLimit() (uint64, bool)        { return 0, false }
