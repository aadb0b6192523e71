// Command dc-fanout reaches hundreds of targets on several hosts through a few
// queue pairs.
//
//	dc-fanout serve 100             # on each of several hosts: 100 targets
//	dc-fanout 10.77.0.2 10.77.0.3   # reads a greeting of each target there
//
// It uses the first RDMA device with an active port, or the one that $RDMA_DEVICE names.
package main

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

const (
	port      = "7472"
	size      = 64 // of the greeting of a target
	accessKey = 0x6661_6e6f_7574
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: dc-fanout serve TARGETS, or dc-fanout HOST HOST")
	}
	pd := must(must(verbs.OpenDefault(verbs.DeviceConfig{})).AllocPD())
	if os.Args[1] == "serve" {
		serve(pd, must(strconv.Atoi(os.Args[2])))
		return
	}
	fanOut(context.Background(), pd, os.Args[1:])
}

// must ends the program on an error.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// served is what a client has to know of a target: its address, and where its greeting is.
type served struct {
	Address  dc.Address
	Greeting verbs.Remote
}

// serve makes n targets and sends them to a client. It returns when that has disconnected.
func serve(pd *verbs.PD, n int) {
	mr := must(pd.AllocMR(n*size, verbs.MRConfig{Access: verbs.RemoteRead}))
	host, all := must(os.Hostname()), make([]served, n)
	for k := range all {
		t := must(dc.NewTarget(dc.TargetConfig{PD: pd, AccessKey: accessKey, Responders: 2, Receives: 16}))
		defer t.Close()
		copy(mr.Bytes()[k*size:], fmt.Sprintf("target %d of %s", k, host))
		all[k] = served{t.Address(), mr.Region().At(uint64(k * size))}
	}
	conn := must(must(net.Listen("tcp", ":"+port)).Accept())
	check(gob.NewEncoder(conn).Encode(all))
	conn.Read(make([]byte, 1))
}

// fanOut reads the greetings of all targets of some hosts.
func fanOut(ctx context.Context, pd *verbs.PD, hosts []string) {
	i := must(dc.NewInitiator(dc.InitiatorConfig{PD: pd, Contexts: 16}))
	defer i.Close()
	var targets []served
	for _, h := range hosts {
		conn, err := net.Dial("tcp", net.JoinHostPort(h, port))
		for try := 0; err != nil && try < 300; try++ { // it may be about to start
			time.Sleep(200 * time.Millisecond)
			conn, err = net.Dial("tcp", net.JoinHostPort(h, port))
		}
		check(err)
		defer conn.Close() // the host serves as long as it is open
		var those []served
		check(gob.NewDecoder(conn).Decode(&those))
		targets = append(targets, those...)
	}
	mr := must(pd.AllocMR(len(targets)*size, verbs.MRConfig{}))
	var all errgroup.Group
	all.SetLimit(64)
	for k, t := range targets {
		peer := must(i.Resolve(t.Address, accessKey))
		all.Go(func() error {
			r := dc.Request{Op: dc.Read, Local: mr.SGE(k*size, size), Remote: t.Greeting}
			err := i.Do(ctx, peer, r)
			for try := 0; err != nil && try < 5; try++ { // its session broke off; reading twice is no harm
				err = i.Do(ctx, peer, r)
			}
			return err
		})
	}
	check(all.Wait())
	last := bytes.TrimRight(mr.Bytes()[(len(targets)-1)*size:], "\x00")
	fmt.Printf("%d targets on %d hosts, read through %d queue pairs with %d attaches; the last one: %q\n",
		len(targets), len(hosts), i.QueuePairs(), i.Stats().Attaches, last)
}
