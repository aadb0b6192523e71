package main

import (
	"fmt"
	"io"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// What became of a feature in a self-test.
const (
	works   = "works"
	refused = "refused"   // the device or its provider lacks it, and says so
	wrong   = "wrong"     // it failed, its data were wrong, or the device reports it and refuses it
	untried = "not tried" // something else that it needs is missing
)

// runReport is the result of a self-test. It is what to send in.
type runReport struct {
	About   about       `json:"about"`
	Results []runResult `json:"results"`
}

// about is where the self-test ran.
type about struct {
	Device        string         `json:"device"`
	Port          int            `json:"port"`
	Peer          string         `json:"peer,omitempty"` // the other end, if it is another port or device
	Driver        string         `json:"driver"`
	DriverVersion string         `json:"driver_version"` // that of the kernel module; "in-tree" if it has none of its own
	Firmware      string         `json:"firmware"`
	VendorID      uint32         `json:"vendor_id"`
	VendorPart    uint32         `json:"vendor_part"`
	RDMACore      string         `json:"rdma_core"`
	Kernel        string         `json:"kernel"`   // "none" for a simulated device
	Goverbs       string         `json:"goverbs"`  // version of this program, as -version prints it
	Protocol      string         `json:"protocol"` // roce, ib, iw; empty if the kernel does not tell
	LinkLayer     string         `json:"link_layer"`
	MTU           int            `json:"mtu"` // active, in bytes
	GIDs          []runGID       `json:"gids"`
	Features      verbs.Features `json:"features"`
}

// runGID is a GID; its address is shown with -addresses only.
type runGID struct {
	Port    int    `json:"port"`
	Index   int    `json:"index"`
	Type    string `json:"type"`
	Kind    string `json:"kind"` // IPv4, IPv6, link-local or InfiniBand
	Address string `json:"address,omitempty"`
}

type runResult struct {
	Feature string        `json:"feature"` // as in the table of features in docs/features.md
	Result  string        `json:"result"`
	Time    time.Duration `json:"ns"` // making and closing the objects included
	Note    string        `json:"note,omitempty"`
}

func (r runReport) count(result string) (n int) {
	for _, x := range r.Results {
		if x.Result == result {
			n++
		}
	}
	return n
}

// err is a problem if anything was wrong.
func (r runReport) err() error {
	if r.count(wrong) > 0 {
		return errProblem
	}
	return nil
}

func (r runReport) text(w io.Writer) error {
	a, where := r.About, ""
	if a.Peer != "" {
		where = ", to " + a.Peer
	}
	firmware := a.Firmware
	if firmware == "" {
		firmware = "unknown"
	}
	if _, err := fmt.Fprintf(w, "device: %s port %d%s, %s (%s), firmware %s\nkernel: %s, rdma-core: %s, link: %s, MTU %d\n%s\n",
		a.Device, a.Port, where, a.Driver, a.DriverVersion, firmware, a.Kernel, a.RDMACore, a.LinkLayer, a.MTU, a.Goverbs); err != nil {
		return err
	}
	var t table
	t.row("FEATURE", "RESULT", "TIME", "NOTE")
	for _, x := range r.Results {
		result, took := x.Result, ""
		if result == wrong {
			result = "WRONG"
		}
		if result != untried {
			took = round(x.Time).String()
		}
		t.row(x.Feature, result, took, x.Note)
	}
	if err := t.write(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "works: %d, refused: %d, WRONG: %d, not tried: %d\n", r.count(works), r.count(refused), r.count(wrong), r.count(untried))
	return err
}

// round keeps three digits or so.
func round(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(100 * time.Microsecond)
}
