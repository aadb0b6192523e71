//go:build linux

package rig

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/astnames"
	"github.com/goverbs/goverbs/internal/testseed"
	"github.com/goverbs/goverbs/verbs"
)

// Objects are all kinds of objects that a package has, by type name, for tests of
// what their methods return after Close.
type Objects struct {
	// Make makes one of each kind that the device has, and their parents.
	Make func(*testing.T) map[string]any
	// Args are arguments that would do if the objects were open, beside the
	// objects themselves, numbers, and zero structures, pointers and functions.
	Args func(t *testing.T, all map[string]any) []any
	// Own are arguments that are one goroutine's alone, such as a batch; or nil.
	Own func(t *testing.T, all map[string]any) []any
	// Closing is the order to close them in: from the children up.
	Closing []string
	// Users have no Close of their own, and end with the object that they belong to.
	Users map[string][]string
	// Errors of closed objects other than ErrClosed, by Type.Method.
	Returns map[string]error
	// Before is called before a method, to give it something to do; or nil.
	Before func(object any, method string)
	// Plain are types of plain data, and others with methods that need no object.
	Plain []string
}

// CallClosed makes every call on each object after its Close, with its parents open
// and closed: each returns ErrClosed, and none crashes.
func (o *Objects) CallClosed(t *testing.T) {
	all := o.Make(t)
	args := o.args(t, all)
	for _, name := range o.Closing {
		object := all[name]
		if object == nil {
			continue
		}
		require.NoError(t, object.(io.Closer).Close(), name)
		o.callAll(t, name, object, args)
		for _, user := range o.Users[name] {
			o.callAll(t, user, all[user], args)
		}
	}
	for name, object := range all { // nothing is open any more
		o.callAll(t, name, object, args)
	}
}

func (o *Objects) callAll(t *testing.T, name string, object any, args map[reflect.Type]reflect.Value) {
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
		if o.Before != nil {
			o.Before(object, method.Name)
		}
		out, err := within(func() []reflect.Value { return v.Method(i).Call(in) })
		if err != nil {
			t.Errorf("%s: %v", call, err)
		}
		if len(out) == 0 || out[len(out)-1].Type() != reflect.TypeFor[error]() {
			continue
		}
		got, _ := out[len(out)-1].Interface().(error)
		want, special := o.Returns[call]
		if !special && method.Name != "Close" {
			want = verbs.ErrClosed
		}
		if !errors.Is(got, want) {
			t.Errorf("%s returned %v, not %v", call, got, want)
		}
	}
}

// UseAndClose makes goroutines use the objects while others close them: their calls
// return, whatever the order, and everything is closed in the end.
func (o *Objects) UseAndClose(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 3
	}
	r := rand.New(rand.NewPCG(testseed.New(t), 0))
	for range rounds {
		all := o.Make(t)
		args := o.args(t, all)
		var using, closing sync.WaitGroup
		var calm atomic.Int32 // closers that others are to leave a moment to
		stop := make(chan struct{})
		for range 6 {
			mine := rand.New(rand.NewPCG(r.Uint64(), 0))
			args := o.ownArgs(t, all, args)
			using.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if calm.Load() > 0 {
						time.Sleep(time.Millisecond)
						continue
					}
					o.useSome(t, mine, all, args)
				}
			})
		}
		for range 2 {
			pause := time.Duration(r.IntN(30)) * time.Millisecond
			closing.Go(func() {
				time.Sleep(pause)
				for _, name := range o.Closing {
					if all[name] != nil {
						closeInTime(t, name, all[name].(io.Closer), &calm)
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
func (o *Objects) useSome(t *testing.T, r *rand.Rand, all map[string]any, args map[reflect.Type]reflect.Value) {
	name := o.Closing[r.IntN(len(o.Closing))]
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
	for _, v := range out {
		if found, ok := v.Interface().(verbs.Polled); ok {
			found.Dispatch() // until then no other goroutine can poll, or close
		}
	}
	if len(out) == 2 && out[1].IsNil() {
		if made, ok := out[0].Interface().(io.Closer); ok && made != all["Device"] {
			closeInTime(t, call, made, nil)
		}
	}
}

// closeInTime closes an object once its children are closed, here or elsewhere. Calls that
// make children without a pause may leave no moment in which it has none: after a while
// calm makes them pause.
func closeInTime(t *testing.T, name string, object io.Closer, calm *atomic.Int32) {
	const timeout = time.Second
	begin := time.Now()
	end := begin.Add(Timeout)
	asked := false
	for ; ; time.Sleep(time.Millisecond) {
		err := object.Close()
		if err == nil {
			return
		}
		if !asked && calm != nil && time.Since(begin) > timeout {
			asked = true
			calm.Add(1)
			defer calm.Add(-1)
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
	case <-time.After(Timeout):
		return nil, errors.New("it does not return")
	}
}

func (o *Objects) args(t *testing.T, all map[string]any) map[reflect.Type]reflect.Value {
	args := map[reflect.Type]reflect.Value{reflect.TypeFor[context.Context](): reflect.ValueOf(t.Context())}
	for _, v := range append(o.Args(t, all), true, time.Millisecond, time.Now().Add(time.Hour), make([]byte, 64)) {
		args[reflect.TypeOf(v)] = reflect.ValueOf(v)
	}
	for _, object := range all {
		args[reflect.TypeOf(object)] = reflect.ValueOf(object)
	}
	return args
}

// ownArgs are the arguments of one of many goroutines: those that are for one
// goroutine alone it has of its own, or not at all.
func (o *Objects) ownArgs(t *testing.T, all map[string]any, common map[reflect.Type]reflect.Value) map[reflect.Type]reflect.Value {
	args := maps.Clone(common)
	for _, users := range o.Users {
		for _, name := range users {
			delete(args, reflect.TypeOf(all[name]))
		}
	}
	if o.Own != nil {
		for _, v := range o.Own(t, all) {
			args[reflect.TypeOf(v)] = reflect.ValueOf(v)
		}
	}
	return args
}

// argument returns one that was given, or for numbers 8, and for functions, pointers,
// interfaces and structures the zero value.
func argument(t *testing.T, call string, typ reflect.Type, args map[reflect.Type]reflect.Value) reflect.Value {
	if v, ok := args[typ]; ok {
		return v
	}
	switch typ.Kind() {
	case reflect.Int, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return reflect.ValueOf(8).Convert(typ)
	case reflect.Struct, reflect.Func, reflect.Pointer, reflect.Interface, reflect.Chan:
		return reflect.Zero(typ)
	}
	t.Fatalf("%s: say in Args what to give it for %v", call, typ)
	return reflect.Value{}
}

// AllTried requires that all types of the package in the current folder with
// methods that return errors, atLeast so many methods, are among the objects.
func (o *Objects) AllTried(t *testing.T, atLeast int) {
	tried := map[string]bool{}
	for _, name := range append(o.Closing, o.Plain...) {
		tried[name] = true
	}
	for _, users := range o.Users {
		for _, name := range users {
			tried[name] = true
		}
	}
	entries, err := fs.Glob(os.DirFS("."), "*.go")
	require.NoError(t, err)
	seen := 0
	for _, name := range entries {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			fd, ok := d.(*ast.FuncDecl)
			if !ok || fd.Recv == nil || !fd.Name.IsExported() || !returnsError(fd) {
				continue
			}
			if typ := astnames.Receiver(fd); ast.IsExported(typ) {
				seen++
				require.True(t, tried[typ], "%s.%s returns an error: try it after Close", typ, fd.Name.Name)
			}
		}
	}
	require.GreaterOrEqual(t, seen, atLeast)
}

func returnsError(fd *ast.FuncDecl) bool {
	if fd.Type.Results == nil || len(fd.Type.Results.List) == 0 {
		return false
	}
	last, ok := fd.Type.Results.List[len(fd.Type.Results.List)-1].Type.(*ast.Ident)
	return ok && last.Name == "error"
}
