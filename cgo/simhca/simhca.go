//go:build simhca && linux && cgo

package simhca

// #cgo CFLAGS: -D_GNU_SOURCE -Wall -fno-strict-aliasing
// #cgo LDFLAGS: -rdynamic -ldl -lpthread
import "C"
