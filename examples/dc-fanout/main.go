// Command dc-fanout reaches hundreds of targets through a few queue pairs.
//
//	dc-fanout serve 100             # on each of several hosts: 100 targets
//	dc-fanout 10.77.0.1 10.77.0.2   # reads a greeting of each target there
//
// It uses the first RDMA device, or the one that $RDMA_DEVICE names.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
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
	name := os.Getenv("RDMA_DEVICE")
	if list, err := verbs.Devices(); err != nil {
		return nil, nil, err
	} else if name == "" && len(list) > 0 {
		name = list[0].Name
	}
	dev, err := verbs.Open(name, verbs.DeviceConfig{})
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

// record is what a client is told of a target: its address, and where its
// greeting lies.
func record(t *dc.Target, at verbs.Remote) ([]byte, error) {
	b, err := t.Address().MarshalBinary()
	b = binary.BigEndian.AppendUint64(b, at.Addr)
	return binary.BigEndian.AppendUint32(b, at.RKey), err
}

// serve makes targets with two responder contexts each, and tells everybody who
// asks about them.
func serve(n int) error {
	pd, mr, err := open(n * greeting)
	if err != nil {
		return err
	}
	host, _ := os.Hostname()
	var all []byte
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
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		conn.Write(all)
		conn.Close()
	}
}

func fanOut(ctx context.Context, hosts []string) error {
	pd, mr, err := open(1 << 20)
	if err != nil {
		return err
	}
	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: pd, Contexts: 16})
	if err != nil {
		return err
	}
	defer i.Close()
	start, posted := time.Now(), 0
	for _, h := range hosts {
		conn, err := net.Dial("tcp", net.JoinHostPort(h, port))
		if err != nil {
			return err
		}
		b, err := io.ReadAll(conn)
		conn.Close()
		if err != nil {
			return err
		}
		const addressLen = 52
		for ; len(b) >= addressLen+12; b = b[addressLen+12:] {
			var a dc.Address
			if err := a.UnmarshalBinary(b[:addressLen]); err != nil {
				return err
			}
			p, err := i.Resolve(a, accessKey)
			if err != nil {
				return err
			}
			at := verbs.Remote{Addr: binary.BigEndian.Uint64(b[addressLen:]), RKey: binary.BigEndian.Uint32(b[addressLen+8:])}
			if _, err := i.Post(p, dc.Request{ID: uint64(posted), Op: dc.Read, Local: mr.SGE(posted*greeting, greeting), Remote: at}); err != nil {
				return err
			}
			posted++
		}
	}
	var cs [32]dc.Completion
	for done := 0; done < posted; {
		n, err := i.Wait(ctx, cs[:])
		if err != nil {
			return err
		}
		for _, c := range cs[:n] {
			if c.Err != nil {
				return c.Err
			}
		}
		done += n
	}
	fmt.Printf("%d targets answered in %v; the last one: %q\n%+v\n", posted, time.Since(start).Round(time.Millisecond),
		string(mr.Bytes()[(posted-1)*greeting:][:32]), i.Stats())
	return nil
}
