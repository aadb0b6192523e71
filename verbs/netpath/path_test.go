package netpath

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRoCEMTU(t *testing.T) {
	for _, c := range []struct{ ip, want int }{
		{0, 0}, {68, 0}, {351, 0}, {352, 256}, {1280, 1024}, {1500, 1024}, {2143, 1024}, {2144, 2048}, {4191, 2048},
		{4192, 4096}, {4200, 4096}, {9000, 4096}, {65536, 4096}, {-1, 0},
	} {
		require.Equal(t, c.want, RoCEMTU(c.ip), "%d bytes", c.ip)
	}
}

func TestPathMTU(t *testing.T) {
	for _, c := range []struct {
		netdev, route int
		ipoib         bool
		want          int
	}{
		{4200, 0, false, 4096},
		{1500, 0, false, 1024},
		{9000, 2200, false, 2048},
		{2200, 9000, false, 2048},
		{9000, 9000, false, 4096},
		{9000, 100, false, 0},
		{2044, 1000, true, 0},
	} {
		require.Equal(t, c.want, pathMTU(Netdev{MTU: c.netdev, IPoIB: c.ipoib}, c.route), "%+v", c)
	}
}
