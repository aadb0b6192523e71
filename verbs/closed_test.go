//go:build linux

package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/verbs"
)

// What a closed object answers that is not ErrClosed. A call that ends what has
// ended already succeeds.
var closedAnswers = map[string]error{
	"CMConn.Disconnect":   nil,
	"CMConn.Err":          verbs.ErrDisconnected,
	"CMRequest.Accept":    verbs.ErrState, // it was answered: that is its end
	"CMRequest.AcceptUD":  verbs.ErrState,
	"CMRequest.Reject":    verbs.ErrState,
	"CMRequest.AcceptQPN": verbs.ErrAttributes, // it was for a connection
}

// Types of plain data, whose methods need no object of a device.
var plainTypes = map[string]bool{"Region": true, "Endpoint": true, "WC": true, "Message": true, "OpError": true, "WCError": true, "RejectedError": true, "TransitionError": true}

// closable are all kinds of objects, by type name, with what they stand on.
func closable(t *testing.T) map[string]any {
	p := cmPorts(t)
	a, b := newPair(t, verbs.QPConfig{Ops: verbs.OpBindWindow | verbs.OpLocalInvalidate}, verbs.CQConfig{Fields: verbs.FieldsStandard}, verbs.ConnectConfig{})
	_ = b
	recvs, err := a.qp.NewRecvBatch(4)
	require.NoError(t, err)
	masked, err := verbs.NewMasked(a.qp, a.mr, 0, verbs.MaskedConfig{})
	require.NoError(t, err)
	srq, err := a.pd.CreateSRQ(verbs.SRQConfig{})
	require.NoError(t, err)
	ah, err := a.pd.CreateAH(verbs.AHAttr{GID: p[1].gid.GID, SGIDIndex: p[0].gid.Index, Port: p[0].gid.Port})
	require.NoError(t, err)
	window, err := a.pd.AllocWindow(verbs.Window1)
	require.NoError(t, err)

	m := newCM(t)
	ctx := cmContext(t)
	listener, err := m.Listen(addrOf(p[1]).String()+":0", verbs.ListenConfig{})
	require.NoError(t, err)
	accepted := make(chan *verbs.CMConn, 1)
	var request *verbs.CMRequest
	go func() {
		r, err := listener.Accept(ctx)
		if err != nil {
			close(accepted)
			return
		}
		request = r
		c, _ := r.Accept(ctx, verbs.ConnConfig{})
		accepted <- c
	}()
	conn, err := m.Dial(ctx, listener.Addr().String(), verbs.DialConfig{Local: netip.AddrPortFrom(addrOf(p[0]), 0)})
	require.NoError(t, err)
	far := <-accepted
	require.NotNil(t, far)
	require.NoError(t, far.Close())
	peer, err := m.Join(ctx, netip.MustParseAddr("239.7.7.9"), verbs.DialConfig{Local: netip.AddrPortFrom(addrOf(p[0]), 0)})
	require.NoError(t, err)
	streams, err := verbs.StreamListen(m, addrOf(p[1]).String()+":0", verbs.StreamConfig{})
	require.NoError(t, err)
	stream, other, err := newStreams(p, m, verbs.StreamConfig{})
	require.NoError(t, err)
	require.NoError(t, other.Close())

	ls, errs := links(t, ctx, tcpPair(t, p), [2]verbs.LinkConfig{})
	require.NoError(t, errors.Join(errs[:]...))
	all := map[string]any{"Link": ls[0], "Requester": newRequester(t, newSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{}), verbs.RequesterConfig{}),
		"Receiver": newReceiver(t, newSide(t, p[0], verbs.QPConfig{}, verbs.CQConfig{}), verbs.ReceiverConfig{Size: 64}),
		"Device":   a.dev, "PD": a.pd, "CQ": a.cq, "QP": a.qp, "MR": a.mr, "SRQ": srq, "AH": ah, "Window": window,
		"Batch": a.batch(t, 4), "RecvBatch": recvs, "Masked": masked,
		"CM": m, "CMListener": listener, "CMConn": conn, "CMRequest": request, "CMPeer": peer, "StreamListener": streams, "Stream": stream}
	if td, err := a.dev.AllocTD(); err == nil {
		all["TD"] = td
	} else {
		require.ErrorIs(t, err, verbs.ErrUnsupported)
	}
	if dm, err := a.dev.AllocDeviceMemory(64, 0); err == nil {
		all["DeviceMemory"] = dm
	} else {
		require.ErrorIs(t, err, verbs.ErrUnsupported)
	}
	return all
}

// closingOrder is from the children up.
var closingOrder = []string{"Link", "Requester", "Receiver", "Stream", "StreamListener", "CMPeer", "CMConn", "CMListener", "Window", "AH", "TD", "DeviceMemory", "Flow", "QP", "SRQ", "MR", "CQ", "PD", "Device", "CM"}

// Every call on a closed object answers ErrClosed, with what it stands on open
// or closed, and none crashes.
func TestEveryCallAfterClose(t *testing.T) {
	all := closable(t)
	args := closedArgs(t, all)
	for _, name := range closingOrder {
		object := all[name]
		if object == nil {
			continue
		}
		require.NoError(t, object.(io.Closer).Close(), name)
		callAll(t, name, object, args)
		for _, user := range map[string][]string{"QP": {"Batch", "RecvBatch", "Masked"}, "CMConn": {"CMRequest"}}[name] {
			callAll(t, user, all[user], args)
		}
	}
	for name, object := range all { // nothing is open any more
		callAll(t, name, object, args)
	}
}

func callAll(t *testing.T, name string, object any, args map[reflect.Type]reflect.Value) {
	t.Helper()
	v := reflect.ValueOf(object)
	for i := range v.NumMethod() {
		method := v.Type().Method(i)
		call := name + "." + method.Name
		var in []reflect.Value
		for j := 1; j < method.Type.NumIn(); j++ {
			if method.Type.IsVariadic() && j == method.Type.NumIn()-1 {
				break
			}
			in = append(in, argument(t, call, method.Type.In(j), args))
		}
		if b, ok := object.(*verbs.Batch); ok && (method.Name == "Post" || method.Name == "PostPoll") {
			b.Reset()
			b.Send(1, verbs.Signaled)
		}
		if b, ok := object.(*verbs.RecvBatch); ok && method.Name == "Post" {
			b.Recv(1)
		}
		out, err := within(func() []reflect.Value { return v.Method(i).Call(in) })
		if err != nil {
			t.Errorf("%s: %v", call, err)
		}
		if len(out) == 0 || out[len(out)-1].Type() != reflect.TypeFor[error]() {
			continue
		}
		answer, _ := out[len(out)-1].Interface().(error)
		want, special := closedAnswers[call]
		if !special && method.Name != "Close" {
			want = verbs.ErrClosed
		}
		if !errors.Is(answer, want) {
			t.Errorf("%s answers %v, not %v", call, answer, want)
		}
	}
}

// Goroutines that use objects while others close them get answers, whatever the
// order, and everything is closed in the end.
func TestUseAndCloseAtOnce(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 3
	}
	r := rand.New(rand.NewPCG(testseed.New(t), 0))
	for range rounds {
		all := closable(t)
		args := closedArgs(t, all)
		var using, closing sync.WaitGroup
		stop := make(chan struct{})
		for range 6 {
			mine := rand.New(rand.NewPCG(r.Uint64(), 0))
			using.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						useSome(t, mine, all, args)
					}
				}
			})
		}
		for range 2 {
			pause := time.Duration(r.IntN(30)) * time.Millisecond
			closing.Go(func() {
				time.Sleep(pause)
				for _, name := range closingOrder {
					if all[name] != nil {
						closeInTime(t, name, all[name].(io.Closer))
					}
				}
			})
		}
		closing.Wait()
		close(stop)
		using.Wait()
	}
}

// useSome makes one call on one object. What it makes is closed at once.
func useSome(t *testing.T, r *rand.Rand, all map[string]any, args map[reflect.Type]reflect.Value) {
	name := closingOrder[r.IntN(len(closingOrder))]
	if all[name] == nil {
		return
	}
	v := reflect.ValueOf(all[name])
	i := r.IntN(v.NumMethod())
	method := v.Type().Method(i)
	if method.Name == "Close" {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	call := name + "." + method.Name
	var in []reflect.Value
	for j := 1; j < method.Type.NumIn(); j++ {
		switch typ := method.Type.In(j); {
		case typ == reflect.TypeFor[context.Context]():
			in = append(in, reflect.ValueOf(ctx))
		case typ.Kind() == reflect.Slice && !method.Type.IsVariadic():
			in = append(in, reflect.MakeSlice(typ, 4, 4)) // one's own
		case !method.Type.IsVariadic() || j < method.Type.NumIn()-1:
			in = append(in, argument(t, call, typ, args))
		}
	}
	out, err := within(func() []reflect.Value { return v.Method(i).Call(in) })
	if err != nil {
		t.Errorf("%s: %v", call, err)
		return
	}
	if len(out) == 2 && out[1].IsNil() {
		if made, ok := out[0].Interface().(io.Closer); ok && made != all["Device"] {
			closeInTime(t, call, made)
		}
	}
}

// closeInTime closes an object once those on it are closed, by whoever it was.
func closeInTime(t *testing.T, name string, object io.Closer) {
	for end := time.Now().Add(testTimeout); ; time.Sleep(time.Millisecond) {
		err := object.Close()
		if err == nil {
			return
		}
		if !errors.Is(err, verbs.ErrInUse) || time.Now().After(end) {
			t.Errorf("close %s: %v", name, err)
			return
		}
	}
}

// within is a call that must end soon, and without a panic.
func within(f func() []reflect.Value) (out []reflect.Value, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("panic: %v", r)
			}
		}()
		out = f()
	}()
	select {
	case <-done:
		return out, err
	case <-time.After(testTimeout):
		return nil, errors.New("it does not return")
	}
}

// closedArgs are arguments that would do if the object were open.
func closedArgs(t *testing.T, all map[string]any) map[reflect.Type]reflect.Value {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	t.Cleanup(func() { null.Close() })
	gid := all["QP"].(*verbs.QP).GID()
	ah := all["AH"].(*verbs.AH)
	args := map[reflect.Type]reflect.Value{reflect.TypeFor[context.Context](): reflect.ValueOf(t.Context())}
	for _, v := range []any{
		"10.77.0.2:7777", 8, true, null, time.Millisecond, time.Now().Add(time.Hour), netip.MustParseAddr("239.7.7.9"),
		make([]byte, 64), make([]verbs.WC, 4), make([]verbs.WCEx, 4),
		verbs.QPConfig{SendCQ: all["CQ"].(*verbs.CQ), GID: gid}, verbs.RC, verbs.StateError, verbs.AttrState, verbs.QPAttr{State: verbs.StateError},
		verbs.Endpoint{Type: verbs.RC, MTU: verbs.MTU1024, GID: gid.GID}, verbs.Dest{AH: ah}, verbs.Target{AH: ah}, verbs.Window1,
		verbs.Remote{Addr: 8}, verbs.SGE{Addr: 8, Length: 8}, all["MR"].(*verbs.MR).Region(),
	} {
		args[reflect.TypeOf(v)] = reflect.ValueOf(v)
	}
	for _, object := range all {
		args[reflect.TypeOf(object)] = reflect.ValueOf(object)
	}
	return args
}

// argument is one that was given, or for numbers, functions and structures whose
// zero value is useful something of the kind.
func argument(t *testing.T, call string, typ reflect.Type, args map[reflect.Type]reflect.Value) reflect.Value {
	if v, ok := args[typ]; ok {
		return v
	}
	switch typ.Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return reflect.ValueOf(8).Convert(typ)
	case reflect.Struct, reflect.Func, reflect.Pointer:
		return reflect.Zero(typ)
	}
	t.Fatalf("%s: say in closedArgs what to give it for %v", call, typ)
	return reflect.Value{}
}

// What TestEveryCallAfterClose must go through is what the package exports.
func TestEveryTypeIsTriedAfterClose(t *testing.T) {
	tried := map[string]bool{"Batch": true, "RecvBatch": true, "Masked": true, "CMRequest": true, "Pending": true}
	for _, name := range closingOrder {
		tried[name] = true
	}
	entries, err := fs.Glob(os.DirFS("."), "*.go")
	require.NoError(t, err)
	seen := 0
	for _, name := range entries {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		if f.Name.Name != "verbs" {
			continue
		}
		for _, d := range f.Decls {
			fd, ok := d.(*ast.FuncDecl)
			if !ok || fd.Recv == nil || !fd.Name.IsExported() || !answersError(fd) {
				continue
			}
			typ := strings.TrimSuffix(receiver(fd), ".")
			if ast.IsExported(typ) && !plainTypes[typ] {
				seen++
				require.True(t, tried[typ], "%s.%s answers an error: try it after Close", typ, fd.Name.Name)
			}
		}
	}
	require.Greater(t, seen, 100)
}

func answersError(fd *ast.FuncDecl) bool {
	if fd.Type.Results == nil || len(fd.Type.Results.List) == 0 {
		return false
	}
	last, ok := fd.Type.Results.List[len(fd.Type.Results.List)-1].Type.(*ast.Ident)
	return ok && last.Name == "error"
}
