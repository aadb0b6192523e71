package main

import (
	"net/netip"
	"slices"

	"github.com/goverbs/goverbs/verbs"
)

// facts are all that doctor's checks go by. Checks look at nothing else, so a
// test, or a report from elsewhere, can state any host.
type facts struct {
	LibraryError string        `json:"library_error,omitempty"` // why libibverbs lists nothing
	NoRDMA       bool          `json:"no_rdma"`                 // ib_core is not loaded
	UVerbs       bool          `json:"uverbs"`                  // ib_uverbs is there
	UCM          bool          `json:"ucm"`                     // rdma_ucm is there
	UCMFile      fileState     `json:"ucm_file"`
	Shared       bool          `json:"shared"` // all network namespaces see all devices
	Memlock      limit         `json:"memlock"`
	LocksAll     bool          `json:"locks_all"` // privileged: the limit does not count
	Files        limit         `json:"files"`
	HugeLimit    string        `json:"huge_limit,omitempty"` // the file of a cgroup's limit of 0, if the host has huge pages
	IPoIB        []string      `json:"ipoib,omitempty"`      // interfaces of IP over InfiniBand without a device that is found
	Cards        []cardFacts   `json:"cards"`
	Devices      []deviceFacts `json:"devices"`
}

// simulated reports whether there are devices, none of which the kernel knows.
func (f facts) simulated() bool {
	return len(f.Devices) > 0 && !slices.ContainsFunc(f.Devices, func(d deviceFacts) bool { return !d.Simulated })
}

// limit is a resource limit; unlimited is the largest number.
type limit struct {
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

const unlimited = ^uint64(0)

// fileState is whether a device file can be used.
type fileState string

const (
	fileOK      fileState = "ok"
	fileMissing fileState = "missing"
	fileDenied  fileState = "denied" // by its mode, or by a container's list of devices
	fileStale   fileState = "stale"  // it is the file of another device
	fileBroken  fileState = "broken" // anything else
)

// cardFacts are a PCI function that may have RDMA.
type cardFacts struct {
	Address string `json:"address"`
	Vendor  uint32 `json:"vendor"`
	Device  uint32 `json:"device"`
	Driver  string `json:"driver"` // bound to it; empty if none is
	HasRDMA bool   `json:"has_rdma"`
}

type deviceFacts struct {
	Name      string      `json:"name"`
	Driver    string      `json:"driver"`
	Protocol  string      `json:"protocol"`
	File      string      `json:"file"`
	FileState fileState   `json:"file_state"`
	Listed    bool        `json:"listed"`              // by libibverbs
	Simulated bool        `json:"simulated,omitempty"` // the kernel does not know it
	OpenError string      `json:"open_error,omitempty"`
	Ports     []portFacts `json:"ports"`
}

func (d deviceFacts) roce() bool { return d.Protocol == "roce" }

// portFacts are a port; MTUs are in bytes. GIDs are known only if the device
// could be opened.
type portFacts struct {
	Num       int             `json:"num"`
	State     verbs.PortState `json:"state"`
	ActiveMTU int             `json:"active_mtu"`
	MaxMTU    int             `json:"max_mtu"`
	Netdev    string          `json:"netdev"` // empty if this network namespace has it not
	Up        bool            `json:"up"`
	Running   bool            `json:"running"`
	NetdevMTU int             `json:"netdev_mtu"`
	Known     bool            `json:"known"` // the device was asked
	GIDs      []gidFacts      `json:"gids"`
	// Others are netdevs of this network namespace on top of the port's own: a VLAN, a
	// bond, a macvlan in a container.
	Others []netdevFacts `json:"others,omitempty"`
}

type netdevFacts struct {
	Name string `json:"name"`
	MTU  int    `json:"mtu"`
}

type gidFacts struct {
	Type verbs.GIDType `json:"type"`
	Addr netip.Addr    `json:"addr"`
}
