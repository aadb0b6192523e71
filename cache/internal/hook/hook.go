// Package hook has functions over the private state of package server's types, for tests of
// clients. Package server sets them when it is initialized.
package hook

import "github.com/goverbs/goverbs/cache/internal/wire"

// Entry returns where a *server.Server has the record of a key; it is zero if there is none.
var Entry func(server any, key []byte) wire.Entry
