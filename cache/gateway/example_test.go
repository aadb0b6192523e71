package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"sync"

	"github.com/goverbs/goverbs/cache/gateway"
	"github.com/goverbs/goverbs/cache/kv"
)

// A plain is a store in a map that knows get, set and delete without any options. Of all other
// commands clients read that there was a server error.
type plain struct {
	mu      sync.Mutex
	last    uint64
	records map[string]record
}

type record struct {
	value []byte
	flags uint32
	cas   uint64
}

// Do implements [gateway.Store].
func (p *plain) Do(_ context.Context, q *kv.Request) (kv.Reply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.records[string(q.Key)]
	switch {
	case q.Want != 0 || q.Expiry != 0:
		return kv.Reply{}, errors.ErrUnsupported
	case q.Op == kv.OpSet:
		p.last++
		p.records[string(q.Key)] = record{append([]byte(nil), q.Value...), q.Flags, p.last}
		return kv.Reply{Status: kv.OK, CAS: p.last}, nil
	case q.Op != kv.OpGet && q.Op != kv.OpDelete:
		return kv.Reply{}, errors.ErrUnsupported
	case !ok:
		return kv.Reply{Status: kv.NotFound}, nil
	case q.Op == kv.OpDelete:
		delete(p.records, string(q.Key))
		return kv.Reply{Status: kv.OK}, nil
	}
	return kv.Reply{Status: kv.OK, Flags: r.flags, CAS: r.cas, Value: append(q.Into[:0], r.value...)}, nil
}

// StatLines implements [gateway.Store].
func (p *plain) StatLines() [][2]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return [][2]string{{"curr_items", fmt.Sprint(len(p.records))}}
}

// Any program can be the store. The Server of package
// [github.com/goverbs/goverbs/cache/server] is one too: clients of both protocols then see the
// same records.
func Example() {
	g, err := gateway.New(gateway.Config{Store: &plain{records: map[string]record{}}})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go g.Serve(l) // until Shutdown or Close

	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "set greeting 0 0 5\r\nhello\r\nget greeting\r\nincr greeting 1\r\n")
	lines := bufio.NewScanner(c)
	for range 5 {
		lines.Scan()
		fmt.Println(lines.Text())
	}
	// Output:
	// STORED
	// VALUE greeting 0 5
	// hello
	// END
	// SERVER_ERROR the store did not answer
}
