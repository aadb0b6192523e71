package vm

import (
	"fmt"
	"path/filepath"
	"strings"
)

const qemu = "qemu-system-x86_64"

// cmdline is the guest kernel's.
//
// Warnings go to the console (level 5 and below), where they are looked for.
// Emulated, 6.1 takes the time stamp counters of several CPUs for unreliable
// and the HPET for its clock: each reading of the time is then a system call
// and an exit to the emulator. A busy host delivers the emulated timer's first
// interrupts too late for the kernel's test of the IO-APIC, which ends the boot
// in one of some hundred cases: no_timer_check leaves the test out. For the same
// reason stalls are reported later than usual. The crypto layer's tests of
// itself are a quarter of an emulated boot. The emulator has no use for mitigations either,
// which cost a tenth of it; and it moves bytes one by one where a processor with fast string
// operations (ERMS, FSRM) makes the kernel and Go's runtime ask for that; with FSRM alone, which later
// emulators have, 6.1's memmove does not end. Now and then it takes an
// interrupt in the middle of a CMPXCHG16B, and the kernel, which allocates memory by that,
// dies: without CX16 it does not.
const cmdline = "console=ttyS0 quiet loglevel=5 panic=-1 oops=panic random.trust_cpu=on tsc=reliable " +
	"no_timer_check mitigations=off cryptomgr.notests rcupdate.rcu_cpu_stall_timeout=60 watchdog_thresh=60"

// shifts are of clocks that advance by 2^shift ns with each instruction. A fast one is
// for links that the processor of the usual one could not fill.
var shifts = map[string]int{"instructions": 3, "instructions-4ns": 2, "instructions-2ns": 1}

// CountsInstructions reports whether a clock advances with each instruction.
func CountsInstructions(clock string) bool {
	_, ok := shifts[clock]
	return ok
}

// args is QEMU's command line. fds are the numbers, in QEMU, of the sockets
// behind the serial ports, by name; nic is that of the network card or 0.
func (c *Config) args(host int, initrd, console, out string, ports []string, fds map[string]int, nic int) []string {
	a := []string{"-nodefaults", "-display", "none", "-no-reboot", "-no-user-config",
		"-m", fmt.Sprint(c.Memory), "-smp", fmt.Sprint(c.SMP), "-kernel", c.Kernel.Image, "-initrd", initrd,
		"-append", cmdline,
		"-chardev", "file,id=console,path=" + value(console), "-serial", "chardev:console",
		"-device", "virtio-rng-pci",
		"-virtfs", "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap",
		"-device", "virtio-serial-pci",
	}
	cpu := c.CPU
	switch {
	case c.Accel == "kvm":
		a = append(a, "-accel", "kvm")
		cpu = orDefault(cpu, "host")
	case CountsInstructions(c.Clock):
		a = append(a, "-accel", "tcg,thread=single", "-icount", fmt.Sprintf("shift=%d,sleep=off", shifts[c.Clock]))
		cpu = orDefault(cpu, "qemu64")
	default:
		a = append(a, "-accel", "tcg,thread=multi")
		cpu = orDefault(cpu, "max,-erms,-fsrm,-cx16")
	}
	a = append(a, "-cpu", cpu)
	for _, p := range ports {
		a = append(a, "-chardev", fmt.Sprintf("socket,id=%s,fd=%d", p, fds[p]),
			"-device", fmt.Sprintf("virtserialport,chardev=%s,name=%s", p, p))
	}
	for i, s := range c.Shares {
		a = append(a, "-virtfs", fmt.Sprintf("local,path=%s,mount_tag=share%d,security_model=none,multidevs=remap", value(s), i))
	}
	a = append(a, "-virtfs", fmt.Sprintf("local,path=%s,mount_tag=out,security_model=none", value(out)))
	if nic != 0 {
		a = append(a, "-netdev", fmt.Sprintf("stream,id=net0,server=off,addr.type=fd,addr.str=%d", nic),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=net0,mac=52:54:00:77:00:%02x,host_mtu=4200", host+1))
	}
	return a
}

// value is a path in one of QEMU's lists of options.
func value(path string) string { return strings.ReplaceAll(filepath.Clean(path), ",", ",,") }

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}
