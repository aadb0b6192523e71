package greet

import "encoding/binary"

const sharedLabel = "goverbs cache: shared records"

// SharedKey is the key of the records that clients change by themselves. It comes of the tenant's key,
// which is nobody's if the server is everybody's, and of the server's epoch: who has found a record in
// one life of the server must not take that of another one for it.
func SharedKey(key []byte, epoch uint32) []byte {
	return sign(key, sharedLabel, binary.LittleEndian.AppendUint32(nil, epoch), nil)
}
