package dcprom

import (
	"testing"

	"github.com/goverbs/goverbs/internal/prom/promtest"
)

func TestMetrics(t *testing.T) {
	promtest.Fields(t, metrics)
	promtest.Fields(t, targetMetrics)
}
