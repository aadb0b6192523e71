// Command dc-fanout reaches hundreds of targets on several hosts through a few
// queue pairs.
//
//	dc-fanout serve 100             # on each of several hosts: 100 targets
//	dc-fanout 10.77.0.2 10.77.0.3   # reads a greeting of each target there
//
// Then it reads from targets chosen at random for a while, and prints how many
// queue pairs it holds, how often it attached and resumed, and the rate. It uses
// the first RDMA device with an active port, or the one that $RDMA_DEVICE names.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

const (
	port      = "7472"
	greeting  = 64 // bytes of memory for each target
	accessKey = 0x6661_6e6f_7574
	window    = 64 // READs under way
	duration  = 3 * time.Second

	maxFailures = 4 * window // in a row: then a host is gone
)

func main() {
	ctx := context.Background()
	var err error
	switch {
	case len(os.Args) == 3 && os.Args[1] == "serve":
		n, nerr := strconv.Atoi(os.Args[2])
		if err = nerr; err == nil {
			err = serve(n)
		}
	case len(os.Args) > 1:
		err = fanOut(ctx, os.Args[1:])
	default:
		err = errors.New("usage: dc-fanout serve TARGETS, or dc-fanout HOST HOST")
	}
	if err != nil {
		log.Fatal(err)
	}
}

func open(size int) (*verbs.PD, *verbs.MR, error) {
	dev, err := verbs.OpenDefault(verbs.DeviceConfig{})
	if err != nil {
		return nil, nil, err
	}
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, nil, err
	}
	mr, err := pd.AllocMR(size, verbs.MRConfig{Access: verbs.RemoteRead})
	return pd, mr, err
}

// record encodes a target for a client: its address, and the place of its greeting.
func record(t *dc.Target, at verbs.Remote) ([]byte, error) {
	b, err := t.Address().MarshalBinary()
	b = binary.BigEndian.AppendUint64(b, at.Addr)
	return binary.BigEndian.AppendUint32(b, at.RKey), err
}

// serve makes n targets with two responder contexts each, and sends them to a client. It
// returns when the client has disconnected.
func serve(n int) error {
	pd, mr, err := open(n * greeting)
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	all := binary.BigEndian.AppendUint32(nil, uint32(n))
	for k := range n {
		t, err := dc.NewTarget(dc.TargetConfig{PD: pd, AccessKey: accessKey, Responders: 2, Receives: 16})
		if err != nil {
			return err
		}
		defer t.Close()
		copy(mr.Bytes()[k*greeting:], fmt.Sprintf("target %d of %s", k, host))
		r, err := record(t, mr.Region().At(uint64(k*greeting)))
		if err != nil {
			return err
		}
		all = append(all, r...)
	}
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	log.Printf("%d targets", n)
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(all); err != nil {
		return err
	}
	conn.Read(make([]byte, 1))
	return nil
}

// remote is a target and its greeting.
type remote struct {
	peer *dc.Peer
	at   verbs.Remote
}

// fan reaches all targets. Each of the reads under way has memory of its own.
type fan struct {
	initiator *dc.Initiator
	mr        *verbs.MR
	targets   []remote
	free      []uint64    // slots of the memory
	wanted    [window]int // the target of each of the others
	broken    int         // READs that failed and were made again
	failures  int         // in a row
	conns     []net.Conn  // to the hosts, which serve as long as they are open
}

func fanOut(ctx context.Context, hosts []string) error {
	pd, mr, err := open(window * greeting)
	if err != nil {
		return err
	}
	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: pd, Contexts: 16})
	if err != nil {
		return err
	}
	defer i.Close()
	f := &fan{initiator: i, mr: mr}
	defer f.close()
	for n := range uint64(window) {
		f.free = append(f.free, n)
	}
	for _, h := range hosts {
		if err := f.ask(ctx, h); err != nil {
			return err
		}
	}
	if len(f.targets) == 0 {
		return errors.New("no targets")
	}
	start := time.Now()
	if _, err := f.read(ctx, len(f.targets), func(n int) int { return n }); err != nil {
		return err
	}
	fmt.Printf("%d targets on %d hosts answered in %v; the last one: %q\n", len(f.targets), len(hosts),
		time.Since(start).Round(time.Millisecond), f.last())
	start = time.Now()
	n, err := f.read(ctx, math.MaxInt, func(int) int {
		if time.Since(start) > duration {
			return -1
		}
		return rand.IntN(len(f.targets))
	})
	if err != nil {
		return err
	}
	s := i.Stats()
	fmt.Printf("%d queue pairs, %d attaches of which %d resumed a session, %d evictions\n%d READs made again\n%.0f READs/s from targets chosen at random\n",
		i.QueuePairs(), s.Attaches, s.Resumes, s.Evictions, f.broken, float64(n)/time.Since(start).Seconds())
	return nil
}

func (f *fan) close() {
	for _, c := range f.conns {
		c.Close()
	}
}

// ask gets the targets of a host, which may be about to start.
func (f *fan) ask(ctx context.Context, host string) error {
	conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
	for try := 0; err != nil && try < 300; try++ {
		time.Sleep(200 * time.Millisecond)
		conn, err = net.Dial("tcp", net.JoinHostPort(host, port))
	}
	if err != nil {
		return err
	}
	f.conns = append(f.conns, conn)
	var count uint32
	if err := binary.Read(conn, binary.BigEndian, &count); err != nil {
		return err
	}
	for range count {
		b := make([]byte, dc.AddressLen+12)
		if _, err := io.ReadFull(conn, b); err != nil {
			return err
		}
		var a dc.Address
		if err := a.UnmarshalBinary(b[:dc.AddressLen]); err != nil {
			return err
		}
		p, err := f.initiator.Resolve(a, accessKey)
		if err != nil {
			return err
		}
		at := verbs.Remote{Addr: binary.BigEndian.Uint64(b[dc.AddressLen:]), RKey: binary.BigEndian.Uint32(b[dc.AddressLen+8:])}
		f.targets = append(f.targets, remote{p, at})
	}
	return ctx.Err()
}

// read reads the greetings of up to most targets, in the order that next returns them,
// until that is negative, and returns how many.
func (f *fan) read(ctx context.Context, most int, next func(n int) int) (done int, err error) {
	posted, end := 0, false
	for !end || done < posted {
		for !end && len(f.free) > 0 {
			n := -1
			if posted < most {
				n = next(posted)
			}
			if end = n < 0; end {
				break
			}
			slot := f.free[len(f.free)-1]
			f.free = f.free[:len(f.free)-1]
			f.wanted[slot] = n
			if err := f.post(slot); err != nil {
				return done, err
			}
			posted++
		}
		if done == posted {
			return done, nil
		}
		var cs [32]dc.Completion
		n, err := f.initiator.Wait(ctx, cs[:])
		if err != nil {
			return done, err
		}
		for _, c := range cs[:n] {
			if c.Err == nil {
				f.free, f.failures = append(f.free, c.ID), 0
				done++
				continue
			}
			// The session broke off. The next request begins another; reading a
			// greeting twice is no harm.
			if f.failures++; f.failures > maxFailures {
				return done, c.Err
			}
			f.broken++
			if err := f.post(c.ID); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

// post posts the READ that is wanted for a slot of the memory.
func (f *fan) post(slot uint64) error {
	t := &f.targets[f.wanted[slot]]
	_, err := f.initiator.Post(t.peer, dc.Request{ID: slot, Op: dc.Read, Local: f.mr.SGE(int(slot)*greeting, greeting), Remote: t.at})
	return err
}

// last returns the greeting that came last.
func (f *fan) last() string {
	slot := int(f.free[len(f.free)-1])
	b := f.mr.Bytes()[slot*greeting:][:greeting]
	return string(bytes.TrimRight(b, "\x00"))
}
