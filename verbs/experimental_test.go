package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbs/experimental"
)

func TestExperimentalBits(t *testing.T) {
	require.Equal(t, []verbs.Access{verbs.OnDemand, verbs.HugePages, verbs.FlushableGlobal, verbs.FlushablePersistent},
		[]verbs.Access{experimental.OnDemand, experimental.HugePages, experimental.FlushableGlobal, experimental.FlushablePersistent})
	require.Equal(t, verbs.OpFlush, experimental.OpFlush)
	require.Equal(t, verbs.FieldSender, experimental.FieldSender)
	require.EqualValues(t, []int{verbs.FlushGlobal, verbs.FlushPersistent}, []int{int(experimental.FlushGlobal), int(experimental.FlushPersistent)})
}
