package greet

import "encoding/binary"

const sharedLabel = "goverbs cache: shared records"

// SharedKey returns the key of the records that clients change directly. It is derived from the
// tenant's key, which is empty if the server admits any client, and from the server's epoch, so that a
// client cannot take a record of another life of the server for one that it has found.
func SharedKey(key []byte, epoch uint32) []byte {
	return sign(key, sharedLabel, binary.LittleEndian.AppendUint32(nil, epoch), nil)
}
