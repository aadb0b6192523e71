// Command kv is a key-value service: clients PUT by a message to the server, and
// GET by READing its table, in which the server's CPU takes no part.
//
//	kv                            # on the server
//	kv 10.77.0.2 put colour blue  # on a client
//	kv 10.77.0.2 get colour
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log"
	"net"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

const (
	port  = "7474"
	slots = 4096
	size  = 256 // of a slot: CRC of the rest, length of key, length of value, key, value
)

var messages = verbs.ReceiverConfig{Size: size}

// at returns the offset of a key's slot. Of two keys with one slot the later one has it.
func at(key string) int { return int(crc32.ChecksumIEEE([]byte(key))%slots) * size }

func encode(slot []byte, key, value string) error {
	if key == "" || len(key)+len(value) > size-6 {
		return fmt.Errorf("a key, and with its value at most %d bytes", size-6)
	}
	clear(slot[copy(slot[6:], key+value)+6 : size])
	slot[4], slot[5] = byte(len(key)), byte(len(value))
	binary.LittleEndian.PutUint32(slot, crc32.ChecksumIEEE(slot[4:size]))
	return nil
}

// decode decodes a slot, and reports whether it is whole: it may be READ while it is written.
func decode(slot []byte) (key, value string, whole bool) {
	k, v := int(slot[4]), int(slot[5])
	if k == 0 || 6+k+v > size || binary.LittleEndian.Uint32(slot) != crc32.ChecksumIEEE(slot[4:size]) {
		return "", "", k == 0
	}
	return string(slot[6 : 6+k]), string(slot[6+k : 6+k+v]), true
}

type server struct {
	mu    sync.Mutex // held to write
	table [slots * size]byte
}

func (s *server) listen(ctx context.Context, l net.Listener) error {
	cfg := verbs.LinkConfig{Receive: &messages, Setup: verbs.OfferMemory(s.table[:], verbs.RemoteRead)}
	return verbs.ServeLinks(ctx, l, cfg, s.serve, func(client net.Addr, err error) { log.Print(client, ": ", err) })
}

// serve stores what one client sends.
func (s *server) serve(ctx context.Context, l *verbs.Link) error {
	answers, err := l.Requester()
	for slot := make([]byte, size); err == nil; {
		if _, err = l.Receiver().Receive(ctx, slot); err != nil {
			break
		}
		if key, _, whole := decode(slot); whole && key != "" {
			s.mu.Lock()
			copy(s.table[at(key):], slot)
			s.mu.Unlock()
		}
		err = answers.Do(ctx, verbs.SendImmWR(0))
	}
	return err
}

// client is for one goroutine at a time. After an error of a context the device may still have
// its slot ([verbs.InFlightError]): close it.
type client struct {
	*verbs.Link
	r    *verbs.Requester
	slot *verbs.MR
}

func dial(ctx context.Context, address string, cfg verbs.LinkConfig) (c client, err error) {
	cfg.Receive = &messages
	if c.Link, err = verbs.DialLink(ctx, address, cfg); err != nil {
		return c, err
	}
	if c.slot, err = c.AllocMR(size, verbs.MRConfig{}); err == nil {
		c.r, err = c.Requester()
	}
	return c, err
}

func (c client) put(ctx context.Context, key, value string) error {
	if err := encode(c.slot.Bytes(), key, value); err != nil {
		return err
	}
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
