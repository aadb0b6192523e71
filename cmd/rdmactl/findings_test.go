package main

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// healthy is a host without anything to say about.
func healthy() facts {
	return facts{
		UVerbs: true, UCM: true, UCMFile: fileOK, Shared: true,
		Memlock: limit{unlimited, unlimited}, Files: limit{1 << 20, 1 << 20},
		Cards: []cardFacts{{Address: "0000:03:00.0", Vendor: 0x15b3, Device: 0x1017, Driver: "mlx5_core", HasRDMA: true}},
		Devices: []deviceFacts{{
			Name: "mlx5_0", Driver: "mlx5", Protocol: "roce", File: "/dev/infiniband/uverbs0", FileState: fileOK, Listed: true,
			Ports: []portFacts{{
				Num: 1, State: verbs.PortActive, ActiveMTU: 4096, MaxMTU: 4096,
				Netdev: "eth0", Up: true, Running: true, NetdevMTU: 9000, Known: true,
				GIDs: []gidFacts{
					{verbs.GIDRoCEv2, netip.MustParseAddr("fe80::1")},
					{verbs.GIDRoCEv1, netip.MustParseAddr("10.0.0.1")},
					{verbs.GIDRoCEv2, netip.MustParseAddr("10.0.0.1")},
				},
			}},
		}},
	}
}

func TestDoctorHealthy(t *testing.T) {
	require.Empty(t, diagnose(healthy()))
	f := healthy()
	f.Devices[0].Protocol = "ib"
	p := &f.Devices[0].Ports[0]
	*p = portFacts{Num: 1, State: verbs.PortActive, ActiveMTU: 2048, MaxMTU: 4096, Known: true,
		GIDs: []gidFacts{{verbs.GIDInfiniBand, netip.MustParseAddr("fe80::2")}}}
	require.Empty(t, diagnose(f), "InfiniBand needs neither netdev nor RoCE")
}

func TestDoctorSimulated(t *testing.T) {
	f := facts{NoRDMA: true, Shared: true, Memlock: limit{unlimited, unlimited}, Files: limit{1 << 20, 1 << 20},
		Devices: []deviceFacts{{Name: "mlx5_0", Driver: "simulated", FileState: fileOK, Listed: true, Simulated: true}}}
	require.Empty(t, diagnose(f))
}

func TestDoctorFindings(t *testing.T) {
	port := func(f *facts) *portFacts { return &f.Devices[0].Ports[0] }
	second := func(f *facts) *portFacts {
		f.Devices = append(f.Devices, healthy().Devices[0])
		f.Devices[1].Name = "mlx5_1"
		return &f.Devices[1].Ports[0]
	}
	const none = ""
	for name, c := range map[string]struct {
		change              func(*facts)
		level, check, about string
		text, remedy        string
	}{
		"no RDMA in the kernel": {func(f *facts) { *f = facts{NoRDMA: true, Shared: true, Memlock: f.Memlock, Files: f.Files} },
			problem, "modules", "kernel", "ib_core is not loaded", "modprobe"},
		"no ib_uverbs": {func(f *facts) { f.UVerbs = false; f.Devices[0].File, f.Devices[0].FileState = "", "" },
			problem, "modules", "kernel", "ib_uverbs is not loaded", "modprobe ib_uverbs"},
		"no rdma_ucm": {func(f *facts) { f.UCM, f.UCMFile = false, fileMissing },
			advice, "modules", "kernel", "rdma_ucm is not loaded", "modprobe rdma_ucm"},

		"card without driver": {func(f *facts) { f.Cards[0].Driver, f.Cards[0].HasRDMA = "", false },
			problem, "cards", "PCI 0000:03:00.0 (15b3:1017)", "no driver is bound", "modprobe mlx5_core"},
		"card without RDMA driver": {func(f *facts) { f.Cards[0].HasRDMA = false },
			problem, "cards", "PCI 0000:03:00.0 (15b3:1017)", "no RDMA device", "modprobe mlx5_ib"},
		"card that may lack RDMA": {func(f *facts) {
			f.Cards[0] = cardFacts{Address: "0000:04:00.0", Vendor: 0x8086, Device: 0x1592, Driver: "ice"}
		},
			advice, "cards", "PCI 0000:04:00.0 (8086:1592)", "not all cards of ice", "modprobe irdma"},

		"VLAN below the port's MTU": {func(f *facts) { port(f).Others = []netdevFacts{{"eth0.5", 1500}, {"eth0.6", 9000}} },
			advice, "mtu", "mlx5_0 port 1", "the MTU of eth0.5 is 1500: connections from its addresses carry an RDMA MTU of 1024", "ip link set eth0.5 mtu 4200"},
		"macvlan in a pod": {func(f *facts) {
			*port(f) = portFacts{Num: 1, State: verbs.PortActive, ActiveMTU: 4096, MaxMTU: 4096, Known: true, GIDs: port(f).GIDs, Others: []netdevFacts{{"net1", 9000}}}
		},
			advice, "namespace", "mlx5_0 port 1", "reached by the addresses of net1", "leave the netdev where it is"},
		"macvlan on Soft-RoCE": {func(f *facts) {
			f.Devices[0].Driver = "rxe"
			*port(f) = portFacts{Num: 1, State: verbs.PortActive, ActiveMTU: 4096, MaxMTU: 4096, Known: true, GIDs: port(f).GIDs, Others: []netdevFacts{{"net1", 9000}}}
		},
			problem, "namespace", "mlx5_0 port 1", "Soft-RoCE carries no data here", "run in the namespace of its netdev"},
		"IP over InfiniBand of no port": {func(f *facts) { f.IPoIB = []string{"ib0"} },
			problem, "ipoib", "ib0", "no port here has the GID", "rdmactl devices"},
		"huge pages that a cgroup may not use": {func(f *facts) { f.HugeLimit = "/sys/fs/cgroup/hugetlb.2MB.max" },
			advice, "hugepages", "limits", "hugetlb.2MB.max is 0", "hugepages-2Mi"},

		"no device": {func(f *facts) { f.Devices = nil },
			problem, "devices", "host", "there is no RDMA device", "rdma link add"},
		"no device in this namespace": {func(f *facts) { f.Devices, f.Shared = nil, false },
			problem, "devices", "host", "this network namespace has no RDMA device", "rdma dev set NAME netns"},
		"no libibverbs": {func(f *facts) {
			f.LibraryError = "verbs: list devices: unsupported operation"
			f.Devices[0].Listed = false
		},
			problem, "devices", "libibverbs", "unsupported operation", "cgo"},

		"file missing": {func(f *facts) { f.Devices[0].FileState, f.Devices[0].Listed = fileMissing, false },
			problem, "files", "mlx5_0", "/dev/infiniband/uverbs0 is missing", "docker run --device /dev/infiniband/uverbs0"},
		"file denied": {func(f *facts) { f.Devices[0].FileState, f.Devices[0].OpenError = fileDenied, "permission denied" },
			problem, "files", "mlx5_0", "no access to /dev/infiniband/uverbs0", "the kernel's own mode"},
		"file stale": {func(f *facts) { f.Devices[0].FileState, f.Devices[0].Listed = fileStale, false },
			problem, "files", "mlx5_0", "the number of another device", "start the container again"},
		"file broken": {func(f *facts) { f.Devices[0].FileState = fileBroken },
			problem, "files", "mlx5_0", "cannot be opened", "dmesg"},
		"rdma_cm missing": {func(f *facts) { f.UCMFile = fileMissing },
			advice, "files", "rdma_cm", "/dev/infiniband/rdma_cm is missing", "docker run --device /dev/infiniband/rdma_cm"},

		"provider missing": {func(f *facts) { f.Devices[0].Listed = false },
			problem, "provider", "mlx5_0", "its provider library libmlx5-rdmav*.so is missing", "ibverbs-providers"},
		"device does not open": {func(f *facts) { f.Devices[0].OpenError = "input/output error" },
			problem, "provider", "mlx5_0", "it cannot be opened: input/output error", "dmesg"},

		"netdev elsewhere": {func(f *facts) {
			*port(f) = portFacts{Num: 1, State: verbs.PortActive, ActiveMTU: 1024, MaxMTU: 4096, Known: true}
		},
			problem, "namespace", "mlx5_0 port 1", "its netdev is in another network namespace", "ip netns exec"},
		"netdev elsewhere, exclusive": {func(f *facts) {
			f.Shared = false
			*port(f) = portFacts{Num: 1, State: verbs.PortDown, ActiveMTU: 1024, MaxMTU: 4096, Known: true}
		},
			problem, "namespace", "mlx5_0 port 1", "they must be together", "rdma dev set mlx5_0 netns"},

		"netdev down": {func(f *facts) { p := port(f); p.Up, p.Running, p.State = false, false, verbs.PortDown },
			problem, "link", "mlx5_0 port 1", "link down: its netdev eth0 is down", "ip link set eth0 up"},
		"no carrier": {func(f *facts) { p := port(f); p.Running, p.State = false, verbs.PortDown },
			problem, "link", "mlx5_0 port 1", "eth0 has no carrier", "cable"},
		"port down": {func(f *facts) { port(f).State = verbs.PortDown },
			problem, "link", "mlx5_0 port 1", "the port is down, not active", "cable"},
		"active deferred": {func(f *facts) { port(f).State = verbs.PortActiveDefer }, none, none, none, none, none},
		"no subnet manager": {func(f *facts) {
			f.Devices[0].Protocol = "ib"
			*port(f) = portFacts{Num: 1, State: verbs.PortInit, Known: true}
		},
			problem, "link", "mlx5_0 port 1", "waits in the state init", "opensm"},
		"InfiniBand port down": {func(f *facts) {
			f.Devices[0].Protocol = "ib"
			*port(f) = portFacts{Num: 1, State: verbs.PortDown, Known: true}
		},
			problem, "link", "mlx5_0 port 1", "the port is down", "cable"},

		"no GID": {func(f *facts) { port(f).GIDs = nil },
			problem, "gid", "mlx5_0 port 1", "there is no GID", "ip addr add ADDRESS/BITS dev eth0"},
		"RoCE v1 only": {func(f *facts) { port(f).GIDs = port(f).GIDs[1:2] },
			problem, "gid", "mlx5_0 port 1", "RoCE v1 only", "ip addr add"},
		"link-local only": {func(f *facts) { port(f).GIDs = port(f).GIDs[:2] },
			advice, "gid", "mlx5_0 port 1", "link-local", "ip addr add"},
		"GIDs not asked for": {func(f *facts) { p := port(f); p.GIDs, p.Known, p.ActiveMTU = nil, false, 0 }, none, none, none, none, none},

		"netdev MTU too small": {func(f *facts) { port(f).NetdevMTU = 1500 },
			problem, "mtu", "mlx5_0 port 1", "the MTU of eth0 is 1500, too small for packets of the active RDMA MTU 4096", "ip link set eth0 mtu 4200"},
		"netdev MTU just too small": {func(f *facts) { port(f).NetdevMTU = 4179 },
			problem, "mtu", "mlx5_0 port 1", "too small", "mtu 4200"},
		"netdev MTU just enough": {func(f *facts) { port(f).NetdevMTU = 4180 }, none, none, none, none, none},
		"tiny netdev MTU": {func(f *facts) { p := port(f); p.NetdevMTU, p.ActiveMTU, p.MaxMTU = 300, 256, 256 },
			problem, "mtu", "mlx5_0 port 1", "the active RDMA MTU 256", "mtu 400"},
		"RDMA MTU limited": {func(f *facts) { p := port(f); p.NetdevMTU, p.ActiveMTU = 1500, 1024 },
			advice, "mtu", "mlx5_0 port 1", "limits the RDMA MTU to 1024 of 4096", "ip link set eth0 mtu 4200"},
		"RDMA MTU limited by something else": {func(f *facts) { port(f).ActiveMTU = 1024 },
			advice, "mtu", "mlx5_0 port 1", "the RDMA MTU is 1024 of 4096 although the MTU of eth0 is 9000", "leave the netdev as it is"},
		"netdev MTU above what a small step needs": {func(f *facts) { p := port(f); p.NetdevMTU, p.ActiveMTU = 4190, 1024 },
			advice, "mtu", "mlx5_0 port 1", "although the MTU of eth0 is 4190", "leave the netdev as it is"},
		"small device": {func(f *facts) { p := port(f); p.NetdevMTU, p.ActiveMTU, p.MaxMTU = 1500, 1024, 1024 }, none, none, none, none, none},
		"MTUs differ": {func(f *facts) { p := second(f); p.NetdevMTU, p.ActiveMTU, p.MaxMTU = 1500, 1024, 1024 },
			advice, "mtu", "host", "different RDMA MTUs: [1024 4096]", "the smaller MTU of its two ends"},

		"memlock": {func(f *facts) { f.Memlock = limit{64 << 10, 64 << 10} },
			problem, "memlock", "limits", "only 64 KiB of memory may be locked", "LimitMEMLOCK=infinity"},
		"memlock that can be raised": {func(f *facts) { f.Memlock = limit{8 << 20, unlimited} },
			problem, "memlock", "limits", "only 8192 KiB", "ulimit -l unlimited"},
		"memlock of the privileged": {func(f *facts) { f.Memlock, f.LocksAll = limit{0, 0}, true }, none, none, none, none, none},
		"enough memlock":            {func(f *facts) { f.Memlock = limit{64 << 20, 64 << 20} }, none, none, none, none, none},
		"few files": {func(f *facts) { f.Files = limit{256, 256} },
			problem, "nofile", "limits", "only 256 files may be open", "LimitNOFILE"},
		"enough files": {func(f *facts) { f.Files = limit{1024, 1024} }, none, none, none, none, none},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy()
			c.change(&f)
			got := diagnose(f)
			if c.level == none {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1, "one cause, one finding: %+v", got)
			require.Equal(t, c.level, got[0].Level)
			require.Equal(t, c.check, got[0].Check)
			require.Equal(t, c.about, got[0].Object)
			require.Contains(t, got[0].Text, c.text)
			require.Contains(t, got[0].Remedy, c.remedy)
		})
	}
}

func TestDoctorProblemsComeFirst(t *testing.T) {
	f := healthy()
	f.UCM, f.UCMFile = false, fileMissing
	f.Files.Soft = 10
	f.Devices[0].Ports[0].Up = false
	got := diagnose(f)
	require.Len(t, got, 3)
	require.Equal(t, []string{problem, problem, advice}, []string{got[0].Level, got[1].Level, got[2].Level})
	require.Equal(t, "link", got[0].Check)
}

func TestDoctorCards(t *testing.T) {
	const network, storage = 0x020000, 0x010802
	for _, c := range []struct {
		card  cardFacts
		class uint32
		want  bool
	}{
		{cardFacts{Vendor: 0x15b3, Device: 0x1017}, network, true},
		{cardFacts{Vendor: 0x15b3, Device: 0x1017}, storage, false},
		{cardFacts{Vendor: 0x15b3, Driver: "mlx5_core"}, storage, true},
		{cardFacts{Vendor: 0x15b3, Driver: "vfio-pci"}, network, false},
		{cardFacts{Vendor: 0x1d0f, Device: 0xefa1}, storage, true},
		{cardFacts{Vendor: 0x1d0f, Device: 0xec20}, network, false},
		{cardFacts{Vendor: 0x1ded, Device: 0x107f}, network, true},
		{cardFacts{Vendor: 0x1ded, Device: 0x1000}, network, false},
		{cardFacts{Vendor: 0x8086, Driver: "ice"}, network, true},
		{cardFacts{Vendor: 0x8086}, network, false},
		{cardFacts{Vendor: 0x1af4, Driver: "virtio-pci"}, network, false},
		{cardFacts{Vendor: 0x1d0f, Driver: "efa"}, network, true},
	} {
		require.Equal(t, c.want, c.card.candidate(c.class), "%+v", c.card)
	}
}
