package wire

// Mode is how a client finds records.
type Mode uint8

const (
	Advised  Mode = iota // as the server advises
	Streamed             // in its own map: the server sends the entries, and then all changes
	Probed               // in the server's table, by READs of buckets
	Bounded              // in its own map, which has a part of the entries, and otherwise in the server's table
	modes
)

const modeFixed = 1

// AppendMode encodes a client's choice.
func AppendMode(dst []byte, m Mode) []byte {
	start := len(dst)
	return end(append(begin(dst, KindMode, 0), byte(m)), start)
}

// ReadMode decodes it.
func ReadMode(src []byte) (Mode, error) {
	epoch, b, err := open(src, KindMode, modeFixed)
	switch {
	case err != nil:
		return 0, err
	case epoch != 0 || len(b) != modeFixed || b[0] >= byte(modes):
		return 0, Malformed
	}
	return Mode(b[0]), nil
}
