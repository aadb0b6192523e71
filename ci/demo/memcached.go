package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
)

// rival is memcached over TCP, with a connection for each goroutine.
type rival struct {
	conns []net.Conn
	in    []*bufio.Reader
}

func dialRival(ctx context.Context, at string) (*rival, error) {
	r := &rival{}
	var d net.Dialer
	for range workers {
		c, err := d.DialContext(ctx, "tcp", at)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.conns, r.in = append(r.conns, c), append(r.in, bufio.NewReader(c))
	}
	return r, nil
}

func (r *rival) close() (err error) {
	for _, c := range r.conns {
		err = errors.Join(err, c.Close())
	}
	return err
}

// set stores a record. It does nothing if r is nil.
func (r *rival) set(_ context.Context, worker, i int) error {
	if r == nil {
		return nil
	}
	b := fmt.Appendf(nil, "set %s 0 0 %d\r\n", keyOf(i), valueSize)
	b = append(append(b, value...), "\r\n"...)
	if _, err := r.conns[worker].Write(b); err != nil {
		return err
	}
	line, err := r.in[worker].ReadSlice('\n')
	if err == nil && string(line) != "STORED\r\n" {
		err = fmt.Errorf("memcached: %q", line)
	}
	return err
}

// do reads or updates a record, and reports whether it was there. If not, it is loaded.
func (r *rival) do(ctx context.Context, worker, i int, update bool) (hit bool, err error) {
	if update {
		return false, r.set(ctx, worker, i)
	}
	if _, err := fmt.Fprintf(r.conns[worker], "get %s\r\n", keyOf(i)); err != nil {
		return false, err
	}
	in := r.in[worker]
	line, err := in.ReadSlice('\n')
	switch {
	case err != nil:
		return false, err
	case string(line) == "END\r\n":
		return false, r.set(ctx, worker, i)
	case string(line) != fmt.Sprintf("VALUE %s 0 %d\r\n", keyOf(i), valueSize):
		return false, fmt.Errorf("memcached: %q", line)
	}
	_, err = io.CopyN(io.Discard, in, valueSize+int64(len("\r\nEND\r\n")))
	return err == nil, err
}
