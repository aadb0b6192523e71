package main

import (
	"testing"
	"time"

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
	const dc, srd = "DC (dynamically connected)", "SRD (reliable datagrams)"
	eth := verbs.Port{LinkLayer: verbs.LinkEthernet, MaxMTU: verbs.MTU4096, ActiveMTU: verbs.MTU4096}
	rich := featuresOf(verbs.Features{
		DeviceAttr: verbs.DeviceAttr{MaxReadAtomic: 16, MaxInitRead: 8, Atomic: verbs.AtomicGlob, MaxSRQ: 10, CompletionVecs: 8, CapFlags: ^uint32(0)},
		OnDemand:   true, TimestampMask: 1, ClockKHz: 1000, MinRate: 1, MaxRate: 9, MaxModerate: 4, MaxModeration: time.Millisecond,
		Window1: true, Window2: true, Mlx5: &verbs.Mlx5Features{Streams: 4}, EFA: &verbs.EFAFeatures{Read: true, MaxRDMA: 100},
	}, eth, []verbs.GIDEntry{{Type: verbs.GIDRoCEv1}, {Type: verbs.GIDRoCEv2}}, "")
	for _, f := range rich {
		require.Equal(t, "yes", f.Has, f.Feature)
	}
	require.Equal(t, "16 outstanding as target, 8 as initiator", find(rich, "RDMA READ").Note)
	require.Equal(t, "1 GIDs", find(rich, "RoCE v2").Note)
	require.Equal(t, "types 1 and 2B", find(rich, "memory windows").Note)
	require.Equal(t, "up to 4 completions, 1ms", find(rich, "completion moderation").Note)
	require.Equal(t, "4 streams of an initiator", find(rich, dc).Note)
	require.Equal(t, "READ yes, WRITE no, up to 100 bytes", find(rich, srd).Note)

	eth.ActiveMTU = verbs.MTU1024
	poor := featuresOf(verbs.Features{DeviceAttr: verbs.DeviceAttr{CompletionVecs: 1}}, eth, nil, "rxe")
	for _, f := range poor {
		require.Equal(t, "no", f.Has, f.Feature)
		require.NotEmpty(t, f.Note, "%s: what is missing has a reason", f.Feature)
	}
	require.Contains(t, find(poor, "MTU 4096").Note, "active MTU is 1024: the netdev's MTU limits it")
	require.Contains(t, find(poor, dc).Note, "needs an mlx5 device")
	require.Contains(t, find(featuresOf(verbs.Features{}, eth, nil, "mlx5"), dc).Note, "libmlx5.so.1 is missing")
	require.Contains(t, find(featuresOf(verbs.Features{}, eth, nil, "efa"), srd).Note, "libefa.so.1 is missing")
	require.Equal(t, "unknown", find(featuresOf(verbs.Features{Mlx5: &verbs.Mlx5Features{}}, eth, nil, "mlx5"), dc).Has)

	ib := featuresOf(verbs.Features{DeviceAttr: verbs.DeviceAttr{Atomic: verbs.AtomicHCA}, Window2: true},
		verbs.Port{LinkLayer: verbs.LinkInfiniBand, MaxMTU: verbs.MTU4096, ActiveMTU: verbs.MTU2048}, nil, "mlx4")
	require.Contains(t, find(ib, "atomics").Note, "not with the host's CPUs")
	require.Equal(t, "the link is InfiniBand", find(ib, "RoCE v2").Note)
	require.Contains(t, find(ib, "MTU 4096").Note, "subnet manager")
	require.Equal(t, "type 2B", find(ib, "memory windows").Note)
	old := featuresOf(verbs.Features{}, verbs.Port{MaxMTU: verbs.MTU2048, ActiveMTU: verbs.MTU2048}, nil, "")
	require.Contains(t, find(old, "MTU 4096").Note, "the device ends there")
}
