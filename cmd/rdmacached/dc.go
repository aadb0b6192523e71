package main

import (
	"fmt"

	"github.com/goverbs/goverbs/cache/server"
)

// dcConfig is that of the target through which clients READ without a queue pair here, in the configuration
// file.
type dcConfig struct {
	Responders int `json:"responders"`
}

func (c dcConfig) server() server.DCConfig { return server.DCConfig{Responders: c.Responders} }

// maxResponders is more than any device is good for.
const maxResponders = 1 << 16

// check returns what is wrong with the settings; of is put behind their names.
func (c dcConfig) check(of string) error {
	if c.Responders < 0 || c.Responders > maxResponders {
		return fmt.Errorf(`"responders" of "dc"%s is not within 0 and %d`, of, maxResponders)
	}
	return nil
}
