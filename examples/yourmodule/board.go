// Package yourmodule is an example: a board whose text clients read by RDMA, without the server's CPU.
package yourmodule

import (
	"bytes"
	"context"
	"errors"
	"net"

	"github.com/goverbs/goverbs/verbs"
)

// Size is the longest text in bytes.
const Size = 256

// Serve offers text to all clients until ctx ends.
func Serve(ctx context.Context, l net.Listener, text string) error {
	if len(text) > Size {
		return errors.New("yourmodule: the text is too long")
	}
	memory := make([]byte, Size)
	copy(memory, text)
	cfg := verbs.LinkConfig{Setup: verbs.OfferMemory(memory, verbs.RemoteRead)}
	wait := func(ctx context.Context, _ *verbs.Link) error { <-ctx.Done(); return ctx.Err() }
	return verbs.ServeLinks(ctx, l, cfg, wait, nil)
}

// Board is a client.
type Board struct {
	link *verbs.Link
	r    *verbs.Requester
	mr   *verbs.MR
	at   verbs.Remote
}

// Dial connects to a server. The dialer's local address decides which device is used.
func Dial(ctx context.Context, d *net.Dialer, server string) (_ *Board, err error) {
	b := &Board{}
	if b.link, err = verbs.DialLink(ctx, server, verbs.LinkConfig{Dialer: d}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.mr, err = b.link.AllocMR(Size, verbs.MRConfig{}); err != nil {
		return nil, err
	}
	if len(b.link.Regions()) != 1 {
		return nil, errors.New("yourmodule: the server offers no memory")
	}
	b.at = b.link.Regions()[0].At(0)
	b.r, err = b.link.Requester()
	return b, err
}

// Text reads the board.
func (b *Board) Text(ctx context.Context) (string, error) {
	if err := b.r.Read(ctx, b.at, b.mr.SGE(0, Size)); err != nil {
		return "", err
	}
	text, _, _ := bytes.Cut(b.mr.Bytes(), []byte{0})
	return string(text), nil
}

// Close closes the connection.
func (b *Board) Close() error { return b.link.Close() }
