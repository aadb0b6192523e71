//go:build !linux

package pacer

import "github.com/goverbs/goverbs/verbs"

// ShareThreshold is for Linux.
func (p *Pacer) ShareThreshold(path string, total int64) error {
	return opError("share threshold by", path, verbs.ErrUnsupported)
}
