package cgo

import (
	"syscall"
	"unsafe"
)

// Posting is a chain to be posted with others ([PostAll]); [SendPosting], [RecvPosting]
// and [SRQPosting] make one. It has the layout of struct gv_posting of shim.h. It holds
// no Go pointers: the chain must not be freed, nor the queue destroyed, before PostAll
// has returned.
type Posting struct {
	queue    uint64
	how      uint64
	wr       uint64
	n        uint32
	kind     uint32
	err      uint32
	accepted uint32
}

// What a chain is of (GV_SENDS of shim.h and so on).
const (
	sends = iota
	recvs
	sharedRecvs
)

// SendPosting is the first n work requests of a chain, as [PostSend] posts them.
func SendPosting(qp QP, path PostPath, c *SendChain, n int) Posting {
	return Posting{queue: uint64(qp), how: uint64(path), wr: addressOf(&c.WRs[0]), n: uint32(n), kind: sends}
}

// RecvPosting is the first n receives of a chain, as [PostRecv] posts them.
func RecvPosting(qp QP, c *RecvChain, n int) Posting {
	return Posting{queue: uint64(qp), wr: addressOf(&c.WRs[0]), n: uint32(n), kind: recvs}
}

// SRQPosting is the first n receives of a chain, as [PostSRQRecv] posts them.
func SRQPosting(srq SRQ, c *RecvChain, n int) Posting {
	return Posting{queue: uint64(srq), wr: addressOf(&c.WRs[0]), n: uint32(n), kind: sharedRecvs}
}

// Posted returns how many the queue took, once [PostAll] has posted them.
func (p *Posting) Posted() (int, error) {
	if p.err != 0 {
		return int(p.accepted), syscall.Errno(p.err)
	}
	return int(p.accepted), nil
}

func addressOf[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }
