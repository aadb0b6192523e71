package operr

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestText(t *testing.T) {
	refused := errors.New("refused")
	require.Equal(t, "verbs: open rxe0: refused (by hand)", Text("verbs", "open", "rxe0", refused, "by hand"))
	require.Equal(t, "netpath: list netdevs: refused", Text("netpath", "list netdevs", "", refused, ""))
	require.Equal(t, "verbs: connect: look up x: refused", Text("verbs", "connect", "", errors.New("netpath: look up x: refused"), ""))
}

func TestClass(t *testing.T) {
	closed := errors.New("closed")
	err := Class(closed, io.EOF)
	require.ErrorIs(t, err, closed)
	require.ErrorIs(t, err, io.EOF)
	require.EqualError(t, err, "closed: EOF")
	require.EqualError(t, Class(closed, errors.New("verbs: read: EOF")), "closed: read: EOF")
}
