package verbs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/cgo"
	"github.com/goverbs/goverbs/verbs/internal/life"
)

// DeviceInfo describes a device of this host that need not be open.
type DeviceInfo struct {
	Name string // kernel name, such as "mlx5_0" or "rxe0"
	GUID uint64 // node GUID in host byte order, 0 if the device has none
}

// Devices lists the RDMA devices of this host. A host without any gives an
// empty list; a build without rdma-core gives [ErrUnsupported].
func Devices() ([]DeviceInfo, error) {
	list, err := cgo.Devices()
	if isErrno(err, syscall.ENOSYS) {
		// The kernel has no ib_uverbs: as much as having no device.
		return nil, nil
	}
	if err != nil {
		return nil, opError("list devices", "", err)
	}
	out := make([]DeviceInfo, len(list))
	for i, d := range list {
		out[i] = DeviceInfo{Name: d.Name, GUID: d.GUID}
	}
	return out, nil
}

// Device is an open device: the parent of everything made on it. All its
// methods are safe for concurrent use.
type Device struct {
	life  life.Life
	name  string
	ctx   cgo.Context
	attr  DeviceAttr
	log   *slog.Logger
	async *asyncReader
	owner deviceOwner // of the context
	gone  atomic.Bool // see destroyed

	vectors atomic.Uint32 // completion vectors given out
	longest sync.Map      // messages of ports: see maxMessage
}

// deviceOwner is [driver.DeviceOwner].
type deviceOwner = struct {
	Close   func() error
	Release func() error
	Event   func(Event)
}

// DeviceConfig configures opening a device. The zero value is fine.
type DeviceConfig struct {
	// Logger receives asynchronous events that no call waits for (a port going
	// down, a queue pair in error); nil: silent.
	Logger *slog.Logger
}

// Open opens the device of that name. The text of [ErrNoDevice] lists the devices that
// there are.
func Open(name string, cfg DeviceConfig) (*Device, error) {
	ctx, err := cgo.OpenDevice(name)
	if err != nil {
		return nil, openError(name, err)
	}
	return newDevice(name, ctx, cfg, deviceOwner{Release: func() error { return cgo.CloseDevice(ctx) }})
}

// OpenDefault opens the device that the environment variable RDMA_DEVICE names, or else
// the first of [Devices] with an active port, or else the first. A program that knows a
// local address should use [LookupAddr] instead.
func OpenDefault(cfg DeviceConfig) (*Device, error) {
	if name := os.Getenv("RDMA_DEVICE"); name != "" {
		return Open(name, cfg)
	}
	list, err := Devices()
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, opError("open", "a device", ErrNoDevice, noDevices())
	}
	for _, info := range list {
		if d, err := Open(info.Name, cfg); err == nil {
			if d.hasActivePort() {
				return d, nil
			}
			if err := d.Close(); err != nil {
				return nil, err
			}
		}
	}
	return Open(list[0].Name, cfg)
}

func (d *Device) hasActivePort() bool {
	for n := range d.attr.Ports {
		if p, err := d.Port(uint8(n + 1)); err == nil && p.State == PortActive {
			return true
		}
	}
	return false
}

func noDevices() string {
	return whyNoDevices(os.DirFS("/sys/class/infiniband_verbs"), os.DirFS("/dev/infiniband"))
}

// whyNoDevices says why libibverbs lists none, by the kernel's list and the device files.
func whyNoDevices(class, files fs.FS) string {
	list, _ := fs.Glob(class, "uverbs*")
	for _, file := range list {
		name, err := fs.ReadFile(class, file+"/ibdev")
		if _, missing := fs.Stat(files, file); err == nil && errors.Is(missing, fs.ErrNotExist) {
			return fmt.Sprintf("the kernel has %s, but /dev/infiniband/%s is missing: in a container, pass the device files in",
				strings.TrimSpace(string(name)), file)
		}
	}
	return "this host has none: is a NIC driver or rdma_rxe loaded, and ib_uverbs?"
}

// newDevice makes a device of an open context.
func newDevice(name string, ctx cgo.Context, cfg DeviceConfig, owner deviceOwner) (*Device, error) {
	d := &Device{name: name, ctx: ctx, log: cfg.Logger, owner: owner}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	d.life.Label = name
	var a cgo.DeviceAttr
	if err := cgo.QueryDevice(ctx, &a); err != nil {
		return nil, errors.Join(opError("query device", name, err), owner.Release())
	}
	d.attr = deviceAttr(&a)
	d.attr.CompletionVecs = cgo.NumCompVectors(ctx)
	var err error
	if d.async, err = startAsync(d); err != nil {
		return nil, errors.Join(opError("watch events of", name, err), owner.Release())
	}
	return d, nil
}

func openError(name string, err error) error {
	if isErrno(err, syscall.ENOENT) { // libibverbs looks elsewhere for a file that it cannot open
		err = fileError(os.DirFS("/sys/class/infiniband_verbs"), "/dev/infiniband", name, err)
	}
	switch {
	case isErrno(err, syscall.ENODEV), isErrno(err, syscall.ENOSYS):
		detail := noDevices()
		if list, _ := Devices(); len(list) > 0 {
			detail = "there are:"
			for _, d := range list {
				detail += " " + d.Name
			}
		}
		return opError("open", name, class(ErrNoDevice, err), detail)
	case isErrno(err, syscall.EACCES), isErrno(err, syscall.EPERM):
		return opError("open", name, err, "no access to /dev/infiniband")
	case isErrno(err, syscall.ENOENT):
		if _, e := os.Stat("/dev/infiniband"); e != nil {
			return opError("open", name, err, "/dev/infiniband is missing: in a container, pass the device nodes in")
		}
	}
	return opError("open", name, err)
}

// fileError returns why the file of a device cannot be opened, or err if it can be.
func fileError(class fs.FS, dir, name string, err error) error {
	list, _ := fs.Glob(class, "uverbs*")
	for _, file := range list {
		if dev, _ := fs.ReadFile(class, file+"/ibdev"); strings.TrimSpace(string(dev)) == name {
			f, fileErr := os.OpenFile(path.Join(dir, file), os.O_RDWR, 0)
			if fileErr != nil {
				return fileErr
			}
			f.Close()
		}
	}
	return err
}

// Close closes the device. It is refused with [ErrInUse] while anything made
// on the device is open. Closing twice is not an error.
func (d *Device) Close() error {
	if d.owner.Close != nil {
		return d.owner.Close()
	}
	return d.close()
}

func (d *Device) close() error {
	return d.life.Close("device", nil, func() error {
		d.async.stop()
		return d.owner.Release()
	})
}

// Name is the kernel's name of the device.
func (d *Device) Name() string { return d.name }

// readLimit is how many READs and atomics may be outstanding in each direction.
func (d *Device) readLimit() int { return min(d.attr.MaxReadAtomic, d.attr.MaxInitRead, 255) }

// softRoCE reports whether this is the kernel's software device (rxe), by its vendor ID.
func (d *Device) softRoCE() bool { return d.attr.VendorID == 0xffffff }

// AtomicCap is how far the atomicity of atomics reaches.
type AtomicCap int

const (
	AtomicNone AtomicCap = iota // IBV_ATOMIC_NONE: no atomics
	AtomicHCA                   // IBV_ATOMIC_HCA: among the queue pairs of this device only: not with the host's CPUs
	AtomicGlob                  // IBV_ATOMIC_GLOB: with the host's CPUs too
)

func (c AtomicCap) String() string {
	return enumString(c, map[AtomicCap]string{AtomicNone: "none", AtomicHCA: "HCA", AtomicGlob: "global"})
}

// DeviceAttr are the properties and limits of a device.
type DeviceAttr struct {
	Firmware       string
	NodeGUID       uint64 // host byte order
	VendorID       uint32
	VendorPartID   uint32
	MaxMRSize      uint64 // bytes
	PageSizes      uint64 // bit n: pages of 2^n bytes
	MaxQP          int
	MaxQPWR        int // work requests in one queue
	MaxSGE         int
	MaxSGERead     int
	MaxCQ          int
	MaxCQE         int // entries in one completion queue
	MaxMR          int
	MaxPD          int
	MaxAH          int
	MaxSRQ         int
	MaxReadAtomic  int // outstanding READs and atomics as their target, a queue pair
	MaxInitRead    int // the same as their initiator
	Atomic         AtomicCap
	Ports          int
	CompletionVecs int
	CapFlags       uint32 // enum ibv_device_cap_flags
}

// NextVector returns a completion vector for a queue that needs no particular one. Each
// call returns the next vector, so that not all interrupts go to one CPU.
func (d *Device) NextVector() int {
	return int(d.vectors.Add(1)-1) % max(d.attr.CompletionVecs, 1)
}

// Attr returns the device's properties, read when it was opened. They remain available
// after Close.
func (d *Device) Attr() DeviceAttr { return d.attr }

func deviceAttr(a *cgo.DeviceAttr) DeviceAttr {
	fw, _, _ := bytes.Cut(a.FWVer[:], []byte{0})
	return DeviceAttr{
		Firmware:      string(fw),
		NodeGUID:      bigEndian64(a.NodeGUID),
		VendorID:      a.VendorID,
		VendorPartID:  a.VendorPartID,
		MaxMRSize:     a.MaxMRSize,
		PageSizes:     a.PageSizeCap,
		MaxQP:         int(a.MaxQP),
		MaxQPWR:       int(a.MaxQPWR),
		MaxSGE:        int(a.MaxSGE),
		MaxSGERead:    int(a.MaxSGERead),
		MaxCQ:         int(a.MaxCQ),
		MaxCQE:        int(a.MaxCQE),
		MaxMR:         int(a.MaxMR),
		MaxPD:         int(a.MaxPD),
		MaxAH:         int(a.MaxAH),
		MaxSRQ:        int(a.MaxSRQ),
		MaxReadAtomic: int(a.MaxQPRdAtom),
		MaxInitRead:   int(a.MaxQPInitRdAtom),
		Atomic:        AtomicCap(a.AtomicCap),
		Ports:         int(a.PhysPortCnt),
		CapFlags:      a.DeviceCapFlags,
	}
}

func enumString[T ~int | ~uint32](v T, names map[T]string) string {
	if s, ok := names[v]; ok {
		return s
	}
	return fmt.Sprintf("%T(%d)", v, v)
}

// bigEndian64 reads a word that holds big-endian bytes.
func bigEndian64(v uint64) uint64 {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], v)
	return binary.BigEndian.Uint64(b[:])
}

// bigEndian32 converts between host order and a word that holds big-endian
// bytes; it is its own inverse.
func bigEndian32(v uint32) uint32 {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	return binary.BigEndian.Uint32(b[:])
}
