//go:build simhca

package native

import _ "github.com/goverbs/goverbs/cgo/simhca" // the devices
