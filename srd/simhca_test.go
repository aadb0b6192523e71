//go:build simhca && linux && cgo

package srd_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cgo/simhca"
	"github.com/goverbs/goverbs/srd"
)

// SRD queue pairs of the unchanged libefa, over devices that are simulated below it.

func init() {
	if strings.Contains(os.Getenv("SIMHCA"), "efa") {
		simulated = []string{"efa_0", "efa_0"}
		unheard = func(t testing.TB, a, b *srd.Endpoint) srd.Addr {
			require.NoError(t, simhca.Hold(simulated[0], a.Addr().QPN, time.Minute))
			return b.Addr()
		}
	}
}

// needEFA skips a test where there are no simulated devices of EFA.
func needEFA(t *testing.T) {
	if len(simulated) == 0 {
		t.Skip("needs SIMHCA=efa")
	}
}
