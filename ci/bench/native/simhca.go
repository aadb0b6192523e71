//go:build simhca

package native

import "github.com/goverbs/goverbs/cgo/simhca"

func init() { deviceClock = simhca.Time }
