package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/netpath"
)

// The device and the MTU for a peer, before anything is opened.
func ExampleResolvePath() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	p, err := verbs.ResolvePath(ctx, netip.MustParseAddr("10.77.0.2"))
	switch {
	case errors.Is(err, netpath.ErrNoRoute), errors.Is(err, netpath.ErrNotRDMA):
		fmt.Println("use TCP:", err)
	case err != nil:
		fmt.Println(err)
	default:
		fmt.Printf("%s port %d, GID index %d, MTU %d, next hop %v\n", p.Device, p.Port, p.GID.Index, p.MTU.Bytes(), p.MAC)
	}
}
