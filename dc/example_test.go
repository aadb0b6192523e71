package dc_test

import (
	"context"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/dc"
	"github.com/goverbs/goverbs/verbs"
)

// One READ from a target. Here both sides are in one process; elsewhere the target's address and
// the description of its memory travel by other means.
func Example() {
	ctx := context.Background()
	dev, err := verbs.OpenDefault(verbs.DeviceConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		log.Fatal(err)
	}
	defer pd.Close()
	mr, err := pd.AllocMR(4096, verbs.MRConfig{Access: verbs.RemoteRead})
	if err != nil {
		log.Fatal(err)
	}
	defer mr.Close()
	copy(mr.Bytes(), "at the target")
	const key = 0x5eed // of the deployment: initiators without it get no reply
	target, err := dc.NewTarget(dc.TargetConfig{PD: pd, AccessKey: key})
	if err != nil {
		log.Fatal(err)
	}
	defer target.Close()

	i, err := dc.NewInitiator(dc.InitiatorConfig{PD: pd})
	if err != nil {
		log.Fatal(err)
	}
	defer i.Close()
	peer, err := i.Resolve(target.Address(), key) // sends nothing yet
	if err != nil {
		log.Fatal(err)
	}
	err = i.Do(ctx, peer, dc.Request{Op: dc.Read, Local: mr.SGE(64, 13), Remote: mr.Region().At(0)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", mr.Bytes()[64:77])
	// Prints: at the target
}
