//go:build simhca

package verbs_test

// SIMHCA names the devices that this simulates.
import _ "github.com/goverbs/goverbs/cgo/simhca"
