package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/cache/cluster"
)

// operators are the commands that change what a member of a cluster does, by etcd.
var operators = map[string]bool{"drain": true, "undrain": true}

// operate carries out a command: a member hands over all its shards, or takes its share again.
func operate(ctx context.Context, name string, args []string, out io.Writer) error {
	set := flag.NewFlagSet("rdmacached "+name, flag.ContinueOnError)
	set.SetOutput(out)
	path := set.String("config", "", "the configuration `file` of any member")
	if err := set.Parse(args); err != nil {
		return err
	}
	if *path == "" || set.NArg() > 1 {
		return fmt.Errorf("usage: rdmacached %s -config file [id of a member, by default that in the file]", name)
	}
	c, err := readConfig(*path)
	if err != nil {
		return err
	}
	if c.Cluster == nil {
		return fmt.Errorf("%s: there is no \"cluster\"", *path)
	}
	m, err := c.Cluster.member(nil, nil)
	if err != nil {
		return err
	}
	id := m.ID
	if set.NArg() == 1 {
		id = set.Arg(0)
	}
	last := -1
	err = cluster.SetDrain(ctx, m, id, name == "drain", func(shards int) {
		if shards != last {
			fmt.Fprintf(out, "%s has %d shards\n", id, shards)
		}
		last = shards
	})
	if errors.Is(err, context.Canceled) && last >= 0 {
		return fmt.Errorf("%s has %d shards, which go on to move", id, last)
	}
	return err
}
