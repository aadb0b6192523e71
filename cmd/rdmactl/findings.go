package main

import (
	"fmt"
	"slices"
	"strings"
)

// finding is one thing that doctor has to say.
type finding struct {
	Level  string `json:"level"` // "problem": something does not work; "advice": it works, but less well
	Check  string `json:"check"` // which check found it
	Object string `json:"object"`
	Text   string `json:"text"`
	Remedy string `json:"remedy"`
}

const (
	problem = "problem"
	advice  = "advice"
)

// checks are independent of each other; each looks for one kind of trouble.
var checks = []struct {
	name string
	run  func(facts) []finding
}{
	{"modules", checkModules},
	{"cards", checkCards},
	{"devices", checkDevices},
	{"files", checkDeviceFiles},
	{"provider", checkProvider},
	{"namespace", checkNamespace},
	{"link", checkLink},
	{"gid", checkGIDs},
	{"mtu", checkMTU},
	{"ipoib", checkIPoIB},
	{"memlock", checkMemlock},
	{"hugepages", checkHugePages},
	{"nofile", checkOpenFiles},
}

// diagnose runs all checks; problems come first.
func diagnose(f facts) []finding {
	out := []finding{}
	for _, c := range checks {
		for _, found := range c.run(f) {
			found.Check = c.name
			out = append(out, found)
		}
	}
	slices.SortStableFunc(out, func(a, b finding) int { return strings.Compare(b.Level, a.Level) })
	return out
}

func checkModules(f facts) (out []finding) {
	if f.simulated() {
		return nil
	}
	if f.NoRDMA {
		return []finding{{problem, "", "kernel", "it has no RDMA (ib_core is not loaded)",
			"load the driver of the card (modprobe mlx5_ib, irdma, bnxt_re, efa ...), or try Soft-RoCE: modprobe rdma_rxe, then rdma link add rxe0 type rxe netdev NAME"}}
	}
	if !f.UVerbs {
		out = append(out, finding{problem, "", "kernel", "the module ib_uverbs is not loaded: programs cannot use the devices", "modprobe ib_uverbs"})
	}
	if !f.UCM {
		out = append(out, finding{advice, "", "kernel", "the module rdma_ucm is not loaded: programs that use librdmacm fail", "modprobe rdma_ucm"})
	}
	return out
}

// rdmaModules are the modules that give RDMA to cards, by the driver that is
// bound to them.
var rdmaModules = map[string]string{
	"mlx5_core": "mlx5_ib", "mlx4_core": "mlx4_ib", "bnxt_en": "bnxt_re", "ice": "irdma", "i40e": "irdma",
	"cxgb4": "iw_cxgb4", "qede": "qedr", "hns3": "hns_roce_hw_v2", "mana": "mana_ib",
}

// driverlessModules drive cards by themselves, by vendor.
var driverlessModules = map[uint32]string{0x15b3: "mlx5_core", 0x1d0f: "efa", 0x1ded: "erdma"}

func checkCards(f facts) (out []finding) {
	for _, c := range f.Cards {
		if c.HasRDMA {
			continue
		}
		object := fmt.Sprintf("PCI %s (%04x:%04x)", c.Address, c.Vendor, c.Device)
		if module := driverlessModules[c.Vendor]; c.Driver == "" && module != "" {
			out = append(out, finding{problem, "", object, "no driver is bound to the card", "modprobe " + module})
		}
		module := rdmaModules[c.Driver]
		switch c.Driver {
		case "":
		case "ice", "i40e", "bnxt_en", "qede", "cxgb4", "hns3":
			// Not all of their cards have RDMA.
			out = append(out, finding{advice, "", object, "the card has no RDMA device; not all cards of " + c.Driver + " can have one", "modprobe " + module})
		default:
			if module != "" {
				out = append(out, finding{problem, "", object, "the card has no RDMA device", "modprobe " + module})
			}
		}
	}
	return out
}

func checkDevices(f facts) []finding {
	switch {
	case f.LibraryError != "":
		return []finding{{problem, "", "libibverbs", f.LibraryError, "build with cgo on Linux, with libibverbs installed (Debian: libibverbs-dev)"}}
	case f.NoRDMA || len(f.Devices) > 0: // modules has said it
		return nil
	case !f.Shared:
		return []finding{{problem, "", "host", "this network namespace has no RDMA device; each belongs to one namespace here",
			"rdma dev set NAME netns THIS, from the namespace that has it; or rdma system set netns shared before any other namespace exists"}}
	}
	return []finding{{problem, "", "host", "there is no RDMA device",
		"load the driver of the card; without one: modprobe rdma_rxe, then rdma link add rxe0 type rxe netdev NAME"}}
}

func checkDeviceFiles(f facts) (out []finding) {
	for _, d := range f.Devices {
		if d.File != "" { // otherwise ib_uverbs is missing, which another check says
			out = append(out, fileFinding(problem, d.Name, d.File, d.FileState)...)
		}
	}
	if f.UCM {
		out = append(out, fileFinding(advice, "rdma_cm", "/dev/infiniband/rdma_cm", f.UCMFile)...)
	}
	return out
}

func fileFinding(level, object, file string, s fileState) []finding {
	switch s {
	case fileMissing:
		return []finding{{level, "", object, file + " is missing", "in a container pass it in (docker run --device " + file + "); otherwise udev makes it: systemctl restart systemd-udevd"}}
	case fileDenied:
		return []finding{{level, "", object, "no access to " + file, "chmod 666 " + file + " (which is the kernel's own mode: look for what changes it in /etc/udev/rules.d); in a container allow the device (docker run --device " + file + ")"}}
	case fileStale:
		return []finding{{level, "", object, file + " has the number of another device", "the driver was loaded anew since the file was made: start the container again, or remove the file and restart udev"}}
	case fileBroken:
		return []finding{{level, "", object, file + " cannot be opened", "dmesg may say why"}}
	}
	return nil
}

func checkProvider(f facts) (out []finding) {
	for _, d := range f.Devices {
		switch {
		case d.FileState != fileOK || f.LibraryError != "":
			// libibverbs leaves out devices without a file.
		case d.Simulated:
		case !d.Listed:
			driver := d.Driver
			if driver == "" {
				driver = "DRIVER"
			}
			out = append(out, finding{problem, "", d.Name, "libibverbs does not list the device: its provider library lib" + driver + "-rdmav*.so is missing or does not fit the kernel",
				"install the providers (Debian: ibverbs-providers; in a container the host's version of rdma-core), and look at /etc/libibverbs.d"})
		case d.OpenError != "":
			out = append(out, finding{problem, "", d.Name, "it cannot be opened: " + d.OpenError, "dmesg may say why"})
		}
	}
	return out
}

// candidate reports whether a PCI function may have RDMA: one of a driver that is
// known for it, or a network function without a driver, of a vendor known for it.
func (c cardFacts) candidate(class uint32) bool {
	if c.Driver != "" {
		return rdmaModules[c.Driver] != "" || slices.Contains([]string{"efa", "erdma"}, c.Driver)
	}
	switch c.Vendor {
	case 0x1d0f: // Amazon has other network cards too
		return c.Device>>4 == 0xefa
	case 0x1ded:
		return c.Device == 0x107f
	}
	return driverlessModules[c.Vendor] != "" && class>>16 == 2
}
