// Command read is the smallest useful RDMA program: a server that offers some
// memory, and a client that READs it without the server's CPU taking part.
//
//	read            # on the server
//	read 10.77.0.2  # on the client
//
// Both use the first RDMA device, or the one that $RDMA_DEVICE names.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"

	"github.com/goverbs/goverbs/verbs"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	name := os.Getenv("RDMA_DEVICE")
	if list, err := verbs.Devices(); err != nil {
		return err
	} else if name == "" && len(list) > 0 {
		name = list[0].Name
	}
	dev, err := verbs.Open(name, verbs.DeviceConfig{})
	if err != nil {
		return err
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	defer pd.Close()
	cq, err := dev.CreateCQ(verbs.CQConfig{})
	if err != nil {
		return err
	}
	defer cq.Close()
	mr, err := pd.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteRead})
	if err != nil {
		return err
	}
	defer mr.Close()
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq})
	if err != nil {
		return err
	}
	defer qp.Close()

	conn, err := dialOrAccept(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	local, err := qp.Endpoint()
	if err != nil {
		return err
	}
	local.Regions = []verbs.Region{mr.Region()}
	copy(mr.Bytes(), "the server's memory")
	remote, err := verbs.Exchange(ctx, conn, local)
	if err != nil {
		return err
	}
	if err := qp.Connect(remote, verbs.ConnectConfig{}); err != nil {
		return err
	}
	if len(os.Args) == 1 {
		conn.Read(make([]byte, 1)) // until the client is done
		return nil
	}

	clear(mr.Bytes())
	batch, err := qp.NewBatch(1)
	if err != nil {
		return err
	}
	batch.Read(1, verbs.Signaled, remote.Regions[0].At(0), mr.SGE(0, 19))
	if _, err := batch.Post(); err != nil {
		return err
	}
	var wcs [1]verbs.WC
	if _, err := cq.Wait(ctx, wcs[:]); err != nil {
		return err
	}
	if err := wcs[0].Err(); err != nil {
		return err
	}
	fmt.Printf("read by RDMA: %q\n", mr.Bytes()[:19])
	return nil
}

// dialOrAccept makes the TCP connection over which addresses are exchanged.
func dialOrAccept(ctx context.Context) (net.Conn, error) {
	if len(os.Args) > 1 {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", net.JoinHostPort(os.Args[1], "7471"))
	}
	l, err := net.Listen("tcp", ":7471")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.Accept()
}
