package main

import (
	"fmt"
	"os"
	"strings"
)

// Device tests that cannot pass on simulated devices. Of verbs:
//   - what is not simulated: device memory, the kernel's limit of locked memory, and programs
//     of rdma-core, which have nothing linked into them (Pingpong);
//   - what mlx5 does otherwise than rxe: the kernel's driver drains no send queue
//     (DrainState), libmlx5 drops completions at RESET (MessageAfterReset,
//     RequesterComesAndGoes), and an overrun of a completion queue puts its queue pairs in error at
//     once (ReceiverBrokenQueue).
//
// Of dc: what needs a network that loses packets, or waits for seconds. Of lockoffload: the
// same, what waits for leases of seconds, and what needs no device, which has run elsewhere.
const (
	onRxe    = "MemoryOfDevice|MemlockLimit|Pingpong|DrainState|MessageAfterReset|RequesterComesAndGoes|ReceiverBrokenQueue"
	notVerbs = onRxe + "|NotAllocate|Fuzz"
	notDC    = "NotAllocate|NoHardware|Loss|RandomPosts|FallsSilent|StalledTarget|DeadTargets|FirstContactWithDead|UnreachableHosts"
	notLocks = "OnADeadWire|FullQueue|BadWire|OneRoundTrip|UnderLoss|GivenUpReads|RoomHeeds|ArrivesLate|OnHosts|WithoutALease|RunsOut|NotAllocate|Histories|Variants|AgentSimulated|SwapSimulated|AMillion|AllocatesNothing|AllocateNothing|TheBusy|^TestCounter$|Fuzz"
	// Names that ownCache has too, of devices without addresses, in cache's own job, or of hosts.
	notCache = "^TestSimulated|OnHosts"
	// The sanitizers allocate.
	notSanitized = "|AllocatesNothing|^TestMasked$"
)

// Programs whose device tests run in a fabric, and what of them cannot: rdmabench's tests that name
// the lab's addresses.
const (
	fabricPackages = "./cmd/rdmacached ./cmd/rdmabench ./examples/ask ./examples/counter ./examples/kv ./examples/read"
	notFabric      = "^TestEveryTest$"
)

// Devices, as SIMHCA names them: mlx5 in Ethernet's form, the same with READs that come
// late and WRITEs in parts, and the orders in which EFA delivers.
const (
	twoMLX5 = "mlx5,mlx5"
	late    = "mlx5:latereads:torn,mlx5:latereads:torn"
)

// simulations are the device tests on simulated devices of mlx5 and EFA: verbs, dc and
// lockoffload by all that the device has, and on the other kinds the tests of the simulation
// itself.
func (r *runner) simulations() []*job {
	skipVerbs := notVerbs
	if r.o.sanitize {
		skipVerbs += notSanitized
	}
	var jobs []*job
	add := func(name, devices, pkg, run, skip string, release string) {
		t := &tests{programs: r.simulated(), packages: words(pkg), env: []string{"SIMHCA=" + devices, "GORACE=atexit_sleep_ms=0"}, release: release}
		if r.o.sanitize {
			t.env = append(t.env, "ASAN_OPTIONS=detect_leaks=0")
		}
		for flag, v := range map[string]string{"-test.run=": run, "-test.skip=": skip} {
			if v != "" {
				t.args = append(t.args, flag+v)
			}
		}
		jobs = append(jobs, &job{name: "simulated-" + name, slots: 1, needs: words("launcher build-simulated"), tests: t})
	}
	both := func(name, devices, release string) {
		add(name, devices, "./verbs ./dc", "Simulated", "Programs", release)
	}
	release := ""
	if r.o.newer {
		release = codenames[newest] + "/amd64"
	}
	add("verbs", twoMLX5, "./verbs", "", skipVerbs, release)
	add("verbs-mtu", "mlx5:ipv4", "./verbs", "TestSimulated.*MTU", "", release)
	add("lockoffload", late, "./lockoffload", "", notLocks, release)
	add("dc", twoMLX5, "./dc", "", notDC, release)
	add("srd-random", "efa:random", "./srd", "", "", release)
	add("srd-mlx5", twoMLX5, "./srd", "", "", release)
	add("srd-ipv4", "mlx5:ipv4,mlx5:ipv4", "./srd", "Poisoned|TestSend$", "", release)
	add("pacer", twoMLX5, "./pacer", "", "NotAllocate", release)
	// Hits through an initiator are all of it that a device without addresses can have.
	add("cache", twoMLX5, "./cache", "TestSimulated", "", release)
	add("cluster", twoMLX5, "./cache/cluster", "", "", release)         // with a real etcd
	add("bench", "mlx5,mlx5,efa", "./ci/bench/native", "", "", release) // each row in small
	// Programs that find devices by the addresses of lo, and processes that are stopped and killed.
	fabric := fmt.Sprintf("mlx5@test-%d,mlx5@test-%[1]d", os.Getpid())
	add("addresses", fabric, "./verbs", "TestFabric", "", release)
	add("programs", fabric, fabricPackages, "", notFabric, release)
	add("processes", fabric, "./cache", "Killed|"+ownCache, notCache, release)
	for _, order := range words("efa efa:reverse") {
		add("srd-"+strings.ReplaceAll(order, ":", "-"), order, "./srd", "Lengths|Faults|Incast|OneDevice", "", release)
	}
	for _, devices := range words("efa efa:reverse efa:random efa:nowrite mlx5:ib,mlx5:ib " + late) {
		name, _, _ := strings.Cut(devices, ",")
		both(strings.ReplaceAll(name, ":", "-"), devices, release)
	}
	if r.debian == oldest && !r.o.newer && !r.o.sanitize { // and with the libraries of Debian 13
		both("newer-mlx5", twoMLX5, codenames[newest]+"/amd64")
		both("newer-efa", "efa", codenames[newest]+"/amd64")
	}
	processes := words("make --no-print-directory simulated-fabric")
	if r.o.sanitize {
		processes = append(processes, "SANITIZE=-fsanitize=address,undefined -fno-sanitize-recover=undefined")
	}
	jobs = append(jobs,
		&job{name: "simulated-preloaded", slots: 1, command: words("make --no-print-directory simulated-preloaded")},
		&job{name: "simulated-fabric", slots: 1, needs: words("simulated-preloaded"), command: processes})
	if !r.o.sanitize && !r.o.newer {
		jobs = append(jobs, &job{name: "simulated-demo", slots: 1, needs: words("simulated-preloaded"), command: words("make --no-print-directory demo SIM=1")})
	}
	if r.debian == oldest && !r.o.sanitize { // docs/simhca.md
		jobs = append(jobs, &job{name: "simulated-ucx", slots: 1, needs: words("simulated-preloaded"), command: words("make --no-print-directory simulated-ucx")})
	}
	return jobs
}
