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

// mostResponders is more than any device is good for.
const mostResponders = 1 << 16

// check says what is wrong with it; whose it is is said before.
func (c dcConfig) check(of string) error {
	if c.Responders < 0 || c.Responders > mostResponders {
		return fmt.Errorf(`"responders" of "dc"%s is not within 0 and %d`, of, mostResponders)
	}
	return nil
}
