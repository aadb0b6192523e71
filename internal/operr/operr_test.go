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

// A cause that is an error about the same object does not name it again.
func TestObjectIsNamedOnce(t *testing.T) {
	const qp = "qp 0x12 to qp 0x13 at 10.0.0.2"
	flushed, denied := errors.New("flushed"), errors.New("denied")
	first := New("READ on", qp, denied)
	for _, c := range []struct {
		cause error
		text  string
	}{
		{Class(flushed, first), "flushed: READ: denied"},
		{Class(flushed, New("use", qp, Class(denied, io.EOF))), "flushed: denied: EOF"},
		{New("SEND on", qp, Class(flushed, first)), "SEND: flushed: READ: denied"},
		{New("use", "qp 0x12", denied), "use qp 0x12: denied"},
	} {
		require.EqualError(t, New("receive on", qp, c.cause), "verbs: receive on "+qp+": "+c.text)
	}
	require.EqualError(t, New("list", "", New("use", "", denied)), "verbs: list: use: denied")
}

func TestClass(t *testing.T) {
	closed := errors.New("closed")
	err := Class(closed, io.EOF)
	require.ErrorIs(t, err, closed)
	require.ErrorIs(t, err, io.EOF)
	require.EqualError(t, err, "closed: EOF")
	require.EqualError(t, Class(closed, errors.New("verbs: read: EOF")), "closed: read: EOF")
}

// An error names its package, and its cause once, on one line.
func TestErrorOfPackage(t *testing.T) {
	require.NoError(t, In("dc", "connect", "x", nil))
	inner := New("modify", "qp 0x11", errors.New("refused"))
	err := In("dc", "connect", "10.77.0.1", errors.Join(inner, errors.New("closed")))
	require.EqualError(t, err, "dc: connect 10.77.0.1: modify qp 0x11: refused; closed")
	require.EqualError(t, &Error{Op: "use", Object: "x", Err: ErrClosed}, "verbs: use x: closed")
	e, ok := errors.AsType[*Error](err)
	require.True(t, ok)
	require.Equal(t, "connect", e.Op)
}
