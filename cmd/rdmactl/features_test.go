package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

func TestCtlFeatures(t *testing.T) {
	find := func(list []featureRow, name string) featureRow {
		for _, f := range list {
			if f.Feature == name {
				return f
			}
		}
		t.Fatalf("no %s in %+v", name, list)
		return featureRow{}
	}
	rich := featuresOf(verbs.DeviceAttr{MaxReadAtomic: 16, MaxInitRead: 8, Atomic: verbs.AtomicGlob, MaxSRQ: 10, CompletionVecs: 8, CapFlags: ^uint32(0)},
		verbs.Port{LinkLayer: verbs.LinkEthernet, MaxMTU: verbs.MTU4096, ActiveMTU: verbs.MTU4096},
		[]verbs.GIDEntry{{Type: verbs.GIDRoCEv1}, {Type: verbs.GIDRoCEv2}}, "efa")
	for _, f := range rich {
		want := "yes"
		if f.Feature == "DC (dynamically connected)" {
			want = "no"
		}
		require.Equal(t, want, f.Has, f.Feature)
	}
	require.Equal(t, "16 outstanding as target, 8 as initiator", find(rich, "RDMA READ").Note)
	require.Equal(t, "1 GIDs", find(rich, "RoCE v2").Note)
	require.Equal(t, "type 1, 2A, 2B", find(rich, "memory windows").Note)

	poor := featuresOf(verbs.DeviceAttr{CompletionVecs: 1}, verbs.Port{LinkLayer: verbs.LinkEthernet, MaxMTU: verbs.MTU4096, ActiveMTU: verbs.MTU1024}, nil, "mlx5")
	for _, f := range poor {
		want := "no"
		if f.Feature == "DC (dynamically connected)" {
			want = "unknown"
		}
		require.Equal(t, want, f.Has, f.Feature)
		require.NotEmpty(t, f.Note, "%s: what is missing has a reason", f.Feature)
	}
	require.Contains(t, find(poor, "MTU 4096").Note, "active MTU is 1024: the netdev's MTU limits it")

	ib := featuresOf(verbs.DeviceAttr{Atomic: verbs.AtomicHCA}, verbs.Port{LinkLayer: verbs.LinkInfiniBand, MaxMTU: verbs.MTU4096, ActiveMTU: verbs.MTU2048}, nil, "mlx4")
	require.Contains(t, find(ib, "atomics").Note, "not with the host's CPUs")
	require.Equal(t, "the link is InfiniBand", find(ib, "RoCE v2").Note)
	require.Contains(t, find(ib, "MTU 4096").Note, "subnet manager")
	old := featuresOf(verbs.DeviceAttr{}, verbs.Port{MaxMTU: verbs.MTU2048, ActiveMTU: verbs.MTU2048}, nil, "")
	require.Contains(t, find(old, "MTU 4096").Note, "the device ends there")
}
