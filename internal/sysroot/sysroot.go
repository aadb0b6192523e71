// Package sysroot has the folder in which libibverbs finds the files of the RDMA devices.
package sysroot

// Kernel is where the kernel has them.
const Kernel = "/sys"

var root = Kernel

// Use sets the folder. Call it while packages are initialized.
func Use(dir string) { root = dir }

// Root returns the folder. It is not [Kernel] if devices stand in for the kernel's, as simulated
// ones do ($SYSFS_PATH).
func Root() string { return root }

// StandIn reports whether the devices are not the kernel's, which knows nothing of them then.
func StandIn() bool { return root != Kernel }
