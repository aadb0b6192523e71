package experimental_test

import (
	"errors"
	"log"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/experimental"
)

// Four kilobytes of the device's own memory as a target of atomics, if the device has any.
func Example() {
	var pd *verbs.PD
	m, err := experimental.AllocDeviceMemory(pd.Device(), 4096, 64)
	if errors.Is(err, verbs.ErrUnsupported) {
		log.Print("the device has no memory of its own")
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	mr, err := experimental.RegisterDeviceMemory(pd, m, 0, 4096, verbs.MRConfig{Access: verbs.RemoteAtomic})
	if err != nil {
		log.Fatal(err)
	}
	defer mr.Close() // before the memory
}
