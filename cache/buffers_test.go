package cache

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A buffer is no longer than what it is for by a page or an eighth, and classes follow one another.
func TestClassesOfBuffers(t *testing.T) {
	last := -1
	for n := 1; n < 3<<30; n += 1 + n/100 {
		class := classOf(n)
		size := sizeOf(class)
		require.GreaterOrEqual(t, size, n)
		require.LessOrEqual(t, size-n, max(pageBytes, n/8))
		require.Zero(t, size%pageBytes)
		require.Less(t, class, classes)
		require.Equal(t, class < shortClasses, n <= shortBytes)
		require.Contains(t, []int{last, last + 1}, class, "%d bytes", n)
		require.Equal(t, class, classOf(size), "a buffer of %d", size)
		last = class
	}
}
