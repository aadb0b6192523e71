package main

import (
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cache/server"
)

// sharedConfig is that of the records which clients change by themselves, in the configuration file.
type sharedConfig struct {
	Records int      `json:"records"`
	Size    size     `json:"size"`
	Clients int      `json:"clients"`
	Lease   duration `json:"lease"`
	Port    int      `json:"port"`
}

func (c sharedConfig) server() server.SharedConfig {
	return server.SharedConfig{Records: c.Records, Size: int(c.Size), Clients: c.Clients, Lease: time.Duration(c.Lease), Port: c.Port}
}

// check returns what is wrong with the settings; of is put behind their names.
func (c sharedConfig) check(of string) error {
	switch {
	case c.Records < 0 || c.Clients < 0:
		return fmt.Errorf(`"records" or "clients" of "shared"%s is below 0`, of)
	case c.Records == 0 && c != sharedConfig{}:
		return fmt.Errorf(`"records" of "shared"%s is missing: how many there may be`, of)
	case c.Port < 0 || c.Port > 65535:
		return fmt.Errorf(`"port" of "shared"%s is none: %d`, of, c.Port)
	}
	return nil
}
