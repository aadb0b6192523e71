//go:build simhca

package yourmodule

// With the tag simhca the variable SIMHCA names simulated devices, which this links into the test.
import _ "github.com/goverbs/goverbs/cgo/simhca"
