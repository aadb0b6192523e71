//go:build simhca

package integrations

// SIMHCA names the devices that this simulates.
import _ "github.com/goverbs/goverbs/cgo/simhca"
