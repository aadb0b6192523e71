package main

import "encoding/binary"

// account is the record of one slot: a balance, and the transfer that has begun to change it,
// if any.
//
// A client that dies between the WRITEs of two slots leaves one of them changed.
// So a transfer writes four times, and a client that finds it half done ends it:
//
//	source: its transfer                     before this: nothing happened
//	destination: its transfer                from here on it counts
//	source: new balance, transfer cleared
//	destination: new balance, transfer cleared
//
// No client changes an account that has a transfer, but to end that.
type account struct {
	balance int64
	open    transfer
}

type transfer struct {
	id     uint64 // 0: none
	from   uint32
	to     uint32
	amount int64
}

const accountSize = 8 + 8 + 4 + 4 + 8

func (a account) encode() []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, uint64(a.balance))
	b = le.AppendUint64(b, a.open.id)
	b = le.AppendUint32(b, a.open.from)
	b = le.AppendUint32(b, a.open.to)
	return le.AppendUint64(b, uint64(a.open.amount))
}

// decode decodes an account. A record that was never written is an empty account.
func decode(b []byte) account {
	if len(b) != accountSize {
		return account{}
	}
	le := binary.LittleEndian
	return account{
		balance: int64(le.Uint64(b)),
		open:    transfer{le.Uint64(b[8:]), le.Uint32(b[16:]), le.Uint32(b[20:]), int64(le.Uint64(b[24:]))},
	}
}

// write is one WRITE that a transfer is to make next.
type write struct {
	slot int
	to   account
}

// steps returns the WRITEs of a whole transfer.
func (t transfer) steps(source, destination account) []write {
	source.open, destination.open = t, t
	return append([]write{{int(t.from), source}, {int(t.to), destination}}, t.finish(source, destination)...)
}

// finish returns the WRITEs that end a transfer that was found in one of its
// accounts or in both.
func (t transfer) finish(source, destination account) []write {
	var w []write
	counts := destination.open == t
	if source.open == t {
		if counts {
			source.balance -= t.amount
		}
		source.open = transfer{}
		w = append(w, write{int(t.from), source})
	}
	if counts {
		destination.balance += t.amount
		destination.open = transfer{}
		w = append(w, write{int(t.to), destination})
	}
	return w
}
