package main

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/experimental"
)

// tryDeviceMemory has a peer WRITE to memory of the device and READ it.
func tryDeviceMemory(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	dm, err := experimental.AllocDeviceMemory(y.dev, 4096, 64)
	if _, err := keep(b, dm, err); err != nil {
		return "", err
	}
	mr, err := experimental.RegisterDeviceMemory(y.pd, dm, 0, 4096, verbs.MRConfig{Access: verbs.RemoteRead | verbs.RemoteWrite})
	if _, err := keep(b, mr, err); err != nil {
		return "", err
	}
	sent, got := x.mr.Bytes()[:64], make([]byte, 64)
	fill(sent)
	if err := x.do(1, func(b *verbs.Batch) { b.Write(1, verbs.Signaled, mr.Region().At(64), x.mr.SGE(0, 64)) }); err != nil {
		return "", err
	}
	if err := dm.CopyOut(got, 64); err != nil {
		return "", err
	}
	if err := sameBytes("what was written", got, sent); err != nil {
		return "", err
	}
	fill(got)
	if err := dm.CopyIn(0, got); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d bytes at most", b.features.DeviceMemory), x.reads(mr.Region(), got)
}

// tryNullMR READs 128 bytes of which the first half is thrown away.
func tryNullMR(b *bench) (string, error) {
	x, y, err := b.pair(verbs.QPConfig{MaxSendSGE: 2}, verbs.CQConfig{})
	if err != nil {
		return "", err
	}
	null, err := experimental.AllocNullMR(x.pd)
	if _, err := keep(b, null, err); err != nil {
		return "", err
	}
	fill(y.mr.Bytes()[:128])
	clear(x.mr.Bytes()[:192])
	if err := x.do(1, func(b *verbs.Batch) { b.Read(1, verbs.Signaled, y.region().At(0), null.SGE(0, 64), x.mr.SGE(64, 64)) }); err != nil {
		return "", err
	}
	return "", errors.Join(
		sameBytes("what was read", x.mr.Bytes()[64:128], y.mr.Bytes()[64:128]),
		sameBytes("what lies before it", x.mr.Bytes()[:64], make([]byte, 64)))
}
