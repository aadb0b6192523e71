// Package canceltest checks that calls do nothing under a context that has ended already.
package canceltest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
)

// Methods calls each method of object that takes a context first, with one that was
// cancelled before, and requires that the error is the context's. The other arguments are
// the first of args that fit, or zero. Methods that skip names, and methods that
// return no error, are left out. At least one method must be tried.
func Methods(t *testing.T, object any, args []any, skip ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	v := reflect.ValueOf(object)
	tried := 0
	for i := range v.NumMethod() {
		m := v.Type().Method(i)
		typ := v.Method(i).Type()
		if typ.NumIn() == 0 || typ.In(0) != reflect.TypeFor[context.Context]() || typ.NumOut() == 0 ||
			typ.Out(typ.NumOut()-1) != reflect.TypeFor[error]() || slices.Contains(skip, m.Name) {
			continue
		}
		in := []reflect.Value{reflect.ValueOf(ctx)}
		for j := 1; j < typ.NumIn() && !(typ.IsVariadic() && j == typ.NumIn()-1); j++ {
			in = append(in, argument(typ.In(j), args))
		}
		out := v.Method(i).Call(in)
		err, _ := out[len(out)-1].Interface().(error)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v.%s under a context that was cancelled before returns %v", v.Type(), m.Name, err)
		}
		tried++
	}
	if tried == 0 {
		t.Errorf("%v has no methods with contexts", v.Type())
	}
}

func argument(typ reflect.Type, args []any) reflect.Value {
	for _, a := range args {
		if reflect.TypeOf(a).AssignableTo(typ) {
			return reflect.ValueOf(a)
		}
	}
	return reflect.Zero(typ)
}
