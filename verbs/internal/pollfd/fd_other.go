//go:build !unix

package pollfd

import (
	"errors"
	"os"
)

func Open(int, string) (*os.File, error) { return nil, errors.ErrUnsupported }
