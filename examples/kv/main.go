// Command kv is a key-value service: clients PUT by a message to the server, and
// GET by READing its table, in which the server's CPU takes no part.
//
//	kv                            # on the server
//	kv 10.77.0.2 colour blue      # on a client: PUT, and GET
//	kv 10.77.0.2 colour           # GET
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

const port, slots, size = "7474", 4096, 256 // of a slot: CRC of the rest, key, "=", value

func main() {
	ctx := context.Background()
	if len(os.Args) == 1 {
		l, err := net.Listen("tcp", ":"+port)
		if err != nil {
			log.Fatal(err)
		}
		log.Fatal(serve(ctx, l))
	}
	c, err := dial(ctx, net.JoinHostPort(os.Args[1], port), verbs.LinkConfig{})
	if err == nil && len(os.Args) == 4 {
		err = c.put(ctx, os.Args[2], os.Args[3])
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.get(ctx, os.Args[2]))
}

// at returns where a key's slot is. Of two keys with one slot the later one has it.
func at(key string) int { return int(crc32.ChecksumIEEE([]byte(key))%slots) * size }

// decode decodes a slot, and reports whether it is whole: it may be READ while it is written.
func decode(slot []byte) (key, value string, whole bool) {
	key, value, _ = strings.Cut(string(bytes.TrimRight(slot[4:size], "\x00")), "=")
	return key, value, key == "" || binary.LittleEndian.Uint32(slot) == crc32.ChecksumIEEE(slot[4:size])
}

// serve has the table, and stores what clients send.
func serve(ctx context.Context, l net.Listener) error {
	table, mu := make([]byte, slots*size), sync.Mutex{}
	cfg := verbs.LinkConfig{Receive: &verbs.ReceiverConfig{Size: size}, Setup: verbs.OfferMemory(table, verbs.RemoteRead)}
	store := func(ctx context.Context, client *verbs.Link) error {
		replies, err := client.Requester()
		for slot := make([]byte, size); err == nil; err = replies.Do(ctx, verbs.SendImmWR(0)) {
			if _, err := client.Receiver().Receive(ctx, slot); err != nil {
				return err
			}
			if key, _, whole := decode(slot); whole && key != "" {
				mu.Lock()
				copy(table[at(key):], slot)
				mu.Unlock()
			}
		}
		return err
	}
	return verbs.ServeLinks(ctx, l, cfg, store, func(client net.Addr, err error) { log.Print(client, ": ", err) })
}

// client is for one goroutine at a time, and not for another call after a [verbs.InFlightError].
type client struct {
	*verbs.Link
	r    *verbs.Requester
	slot *verbs.MR
}

func dial(ctx context.Context, address string, cfg verbs.LinkConfig) (c client, err error) {
	cfg.Receive = &verbs.ReceiverConfig{Size: size}
	if c.Link, err = verbs.DialLink(ctx, address, cfg); err != nil {
		return c, err
	}
	if c.slot, err = c.AllocMR(size, verbs.MRConfig{}); err == nil {
		c.r, err = c.Requester()
	}
	return c, err
}

func (c client) put(ctx context.Context, key, value string) error {
	if key == "" || strings.Contains(key, "=") || len(key)+len(value) > size-5 {
		return fmt.Errorf("a key without =, and with its value at most %d bytes", size-5)
	}
	slot := c.slot.Bytes()[:size]
	clear(slot[4+copy(slot[4:], key+"="+value):])
	binary.LittleEndian.PutUint32(slot, crc32.ChecksumIEEE(slot[4:]))
	if err := c.r.Send(ctx, c.slot.SGE(0, size)); err != nil {
		return err
	}
	_, err := c.Receiver().Receive(ctx, make([]byte, size))
	return err
}

func (c client) get(ctx context.Context, key string) (value string, err error) {
	for {
		if err := c.r.Read(ctx, c.Regions()[0].At(uint64(at(key))), c.slot.SGE(0, size)); err != nil {
			return "", err
		}
		if k, v, whole := decode(c.slot.Bytes()); whole && k == key {
			return v, nil
		} else if whole {
			return "", fmt.Errorf("no %q", key)
		}
	}
}
