//go:build !unix

package verbs

import "os"

func pollable(int, string) (*os.File, error) { return nil, ErrUnsupported }
