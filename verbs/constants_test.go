//go:build linux && cgo

package verbs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo"
)

// constant is one of ours and what it is in C: an enumerator, or any other
// constant expression.
type constant struct {
	value uint64
	c     string
}

// sequence names the enumerators of values that follow each other.
func sequence(first uint64, prefix string, names ...string) []constant {
	var out []constant
	for i, n := range names {
		out = append(out, constant{first + uint64(i), prefix + n})
	}
	return out
}

// bitSequence is the same for bits.
func bitSequence(prefix string, names ...string) []constant {
	out := sequence(0, prefix, names...)
	for i := range out {
		out[i].value = 1 << i
	}
	return out
}

// constants are ours that rdma-core 44 has too.
func constants() []constant {
	all := []constant{
		{uint64(LocalWrite), "IBV_ACCESS_LOCAL_WRITE"},
		{uint64(RemoteWrite), "IBV_ACCESS_REMOTE_WRITE"},
		{uint64(RemoteRead), "IBV_ACCESS_REMOTE_READ"},
		{uint64(RemoteAtomic), "IBV_ACCESS_REMOTE_ATOMIC"},
		{uint64(BindWindow), "IBV_ACCESS_MW_BIND"},
		{uint64(onDemand), "IBV_ACCESS_ON_DEMAND"},
		{uint64(hugePages), "IBV_ACCESS_HUGETLB"},
		{uint64(RelaxedOrder), "IBV_ACCESS_RELAXED_ORDERING"},

		{uint64(Fence), "IBV_SEND_FENCE"},
		{uint64(Signaled), "IBV_SEND_SIGNALED"},
		{uint64(Solicited), "IBV_SEND_SOLICITED"},
		{uint64(Inline), "IBV_SEND_INLINE"},

		{uint64(OpLocalInvalidate), "IBV_QP_EX_WITH_LOCAL_INV"},
		{uint64(OpBindWindow), "IBV_QP_EX_WITH_BIND_MW"},
		{uint64(OpSendInvalidate), "IBV_QP_EX_WITH_SEND_WITH_INV"},
		{uint64(OpAtomicWrite), "IBV_QP_EX_WITH_ATOMIC_WRITE"},
		{uint64(usualOps[RC]), "IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | " +
			"IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | " +
			"IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD"},
		{uint64(usualOps[UC]), "IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | " +
			"IBV_QP_EX_WITH_SEND_WITH_IMM"},
		{uint64(usualOps[UD]), "IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM"},

		{opWrite, "IBV_WR_RDMA_WRITE"},
		{opWriteImm, "IBV_WR_RDMA_WRITE_WITH_IMM"},
		{opSend, "IBV_WR_SEND"},
		{opSendImm, "IBV_WR_SEND_WITH_IMM"},
		{opRead, "IBV_WR_RDMA_READ"},
		{opCmpSwap, "IBV_WR_ATOMIC_CMP_AND_SWP"},
		{opFetchAdd, "IBV_WR_ATOMIC_FETCH_AND_ADD"},
		{opLocalInv, "IBV_WR_LOCAL_INV"},
		{opBindMW, "IBV_WR_BIND_MW"},
		{opSendInv, "IBV_WR_SEND_WITH_INV"},
		{cgo.WRAtomicWrite, "IBV_WR_ATOMIC_WRITE"},

		{uint64(WCSend), "IBV_WC_SEND"},
		{uint64(WCWrite), "IBV_WC_RDMA_WRITE"},
		{uint64(WCRead), "IBV_WC_RDMA_READ"},
		{uint64(WCCmpSwap), "IBV_WC_COMP_SWAP"},
		{uint64(WCFetchAdd), "IBV_WC_FETCH_ADD"},
		{uint64(WCBindMW), "IBV_WC_BIND_MW"},
		{uint64(WCLocalInv), "IBV_WC_LOCAL_INV"},
		{uint64(WCAtomWrite), "IBV_WC_ATOMIC_WRITE"},
		{uint64(WCRecv), "IBV_WC_RECV"},
		{uint64(WCRecvRDMAWithImm), "IBV_WC_RECV_RDMA_WITH_IMM"},
		{uint64(WCRaw), "IBV_WC_DRIVER2"},
		{wcFlagGRH, "IBV_WC_GRH"},
		{wcFlagImm, "IBV_WC_WITH_IMM"},
		{wcFlagInv, "IBV_WC_WITH_INV"},
		{uint64(FieldTimestamp), "IBV_WC_EX_WITH_COMPLETION_TIMESTAMP"},
		{uint64(FieldWallClock), "IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK"},

		{uint64(RC), "IBV_QPT_RC"},
		{uint64(UC), "IBV_QPT_UC"},
		{uint64(UD), "IBV_QPT_UD"},
		{uint64(RawPacket), "IBV_QPT_RAW_PACKET"},
		{uint64(AttrRateLimit), "IBV_QP_RATE_LIMIT"},
		{capMemWindow, "IBV_DEVICE_MEM_WINDOW"},
		{capWindow2B, "IBV_DEVICE_MEM_WINDOW_TYPE_2B"},
	}
	all = append(all, sequence(uint64(MTU256), "IBV_MTU_", "256", "512", "1024", "2048", "4096")...)
	all = append(all, sequence(uint64(PortNop), "IBV_PORT_", "NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")...)
	all = append(all, sequence(uint64(LinkUnspecified), "IBV_LINK_LAYER_", "UNSPECIFIED", "INFINIBAND", "ETHERNET")...)
	all = append(all, sequence(uint64(AtomicNone), "IBV_ATOMIC_", "NONE", "HCA", "GLOB")...)
	all = append(all, sequence(uint64(GIDInfiniBand), "IBV_GID_TYPE_", "IB", "ROCE_V1", "ROCE_V2")...)
	all = append(all, sequence(uint64(StateReset), "IBV_QPS_", "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")...)
	all = append(all, sequence(uint64(WCSuccess), "IBV_WC_", "SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR",
		"LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR", "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR",
		"REM_OP_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR",
		"INV_EECN_ERR", "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR")...)
	all = append(all, sequence(uint64(EventCQError), "IBV_EVENT_", "CQ_ERR", "QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR", "COMM_EST",
		"SQ_DRAINED", "PATH_MIG", "PATH_MIG_ERR", "DEVICE_FATAL", "PORT_ACTIVE", "PORT_ERR", "LID_CHANGE", "PKEY_CHANGE",
		"SM_CHANGE", "SRQ_ERR", "SRQ_LIMIT_REACHED", "QP_LAST_WQE_REACHED", "CLIENT_REREGISTER", "GID_CHANGE", "WQ_FATAL")...)
	all = append(all, bitSequence("IBV_QP_", "STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT", "QKEY",
		"AV", "PATH_MTU", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH", "MIN_RNR_TIMER", "SQ_PSN",
		"MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN")...)
	return all
}

// flushConstants are there since rdma-core 45.
func flushConstants() []constant {
	return []constant{
		{uint64(opFlush), "IBV_QP_EX_WITH_FLUSH"},
		{cgo.WRFlush, "IBV_WR_FLUSH"},
		{uint64(WCFlush), "IBV_WC_FLUSH"},
		{uint64(flushableGlobal), "IBV_ACCESS_FLUSH_GLOBAL"},
		{uint64(flushablePersistent), "IBV_ACCESS_FLUSH_PERSISTENT"},
		{flushGlobal, "IBV_FLUSH_GLOBAL"},
		{flushPersistent, "IBV_FLUSH_PERSISTENT"},
		{flushRange, "IBV_FLUSH_RANGE"},
		{flushRegion, "IBV_FLUSH_MR"},
		{uint64(cgo.FlushOffset()), "offsetof(struct ibv_qp_ex, wr_flush)"},
	}
}

// TestConstantsAreTheHeaders: the C compiler compares what Go says with the
// headers that this was built with.
func TestConstantsAreTheHeaders(t *testing.T) {
	require.Empty(t, compile(t, constants()))
}

func TestFlushIsTheHeaders(t *testing.T) {
	if said := compile(t, flushConstants()[:1]); strings.Contains(said, "undeclared") {
		require.Zero(t, cgo.FlushOffset(), "these headers have no FLUSH")
		t.Skip("headers of rdma-core 44 or older: no FLUSH to compare with")
	}
	require.Empty(t, compile(t, flushConstants()))
}

// A name of the C headers finds ours.
func TestConstantsNameTheirs(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	named := map[string]bool{}
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.go") {
			b, err := os.ReadFile(f)
			require.NoError(t, err)
			for line := range strings.Lines(string(b)) {
				_, comment, _ := strings.Cut(line, "//")
				for _, word := range strings.FieldsFunc(comment, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
					named[word] = true
				}
			}
		}
	}
	for _, c := range append(constants(), flushConstants()...) {
		switch {
		case strings.ContainsAny(c.c, "| ("), // several, or no constant
			strings.HasPrefix(c.c, "IBV_WR_"), strings.HasPrefix(c.c, "IBV_DEVICE_"), strings.HasPrefix(c.c, "IBV_FLUSH_"), // not exported
			c.c == "IBV_WC_GRH", c.c == "IBV_WC_WITH_IMM", c.c == "IBV_WC_WITH_INV":
			continue
		}
		require.True(t, named[c.c], "no comment names %s", c.c)
	}
}

// compile returns what the C compiler of the build says of the constants.
func compile(t *testing.T, all []constant) string {
	t.Helper()
	cc := strings.Fields(os.Getenv("CC"))
	if len(cc) == 0 {
		cc = []string{"gcc"}
	}
	if _, err := exec.LookPath(cc[0]); err != nil {
		t.Skip("no C compiler: ", err)
	}
	source := "#include <stddef.h>\n#include <infiniband/verbs.h>\n"
	for _, c := range all {
		source += fmt.Sprintf("_Static_assert((unsigned long long)(%s) == %#xull, \"Go has %#x for %s\");\n", c.c, c.value, c.value, c.c)
	}
	cmd := exec.Command(cc[0], append(append(cc[1:], strings.Fields(os.Getenv("CGO_CFLAGS"))...), "-fsyntax-only", "-x", "c", "-")...)
	cmd.Stdin = strings.NewReader(source)
	out, err := cmd.CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	return string(out)
}
