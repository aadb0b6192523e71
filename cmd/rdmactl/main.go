package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/goverbs/goverbs/cmd/internal/version"
)

// errProblem: doctor found a problem; it has printed what.
var errProblem = errors.New("problem found")

// result is what a command found: it is printed as text or as JSON.
type result interface {
	text(w io.Writer) error
}

// command is one subcommand. The result may come together with an error, and
// is printed then too.
type command struct {
	name, args, help string
	run              func(ctx context.Context, args []string) (result, error)
}

var commands = []command{
	{"devices", "[DEVICE...]", "RDMA devices, their ports and GIDs", devices},
	{"features", "[DEVICE...]", "what devices can, and why something is missing", features},
	{"path", "[-from ADDR] ADDR", "how packets reach an address", path},
	{"srd", "SOCKET", "peers and paths of a running endpoint of package srd", reliable},
	{"cache", "ADDR:PORT...", "servers of a cache: hits, memory, connections, by the address of each one's metrics", caches},
	{"sim", "FABRIC [FROM TO EFFECT... | clear]", "impairments between simulated devices", sim},
	{"doctor", "[-run [-addresses] [DEVICE [PEER]]]", "what is wrong with RDMA on this host, and what helps; with -run, a self-test of a device", doctor},
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "usage: rdmactl [-json] COMMAND [arguments], or rdmactl -version")
	for _, c := range commands {
		fmt.Fprintf(w, "  %-9s  %-22s  %s\n", c.name, c.args, c.help)
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit status: 1 for a failure or a problem found, 2 for a
// wrong command line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if version.Asked(args) {
		fmt.Fprintln(stdout, version.Of("rdmactl"))
		return 0
	}
	asJSON, args := takeJSON(args)
	if len(args) == 0 {
		usage(stderr)
		return 2
	}
	i := slices.IndexFunc(commands, func(c command) bool { return c.name == args[0] })
	if i < 0 {
		if strings.TrimLeft(args[0], "-") == "help" || args[0] == "-h" {
			usage(stdout)
			return 0
		}
		fmt.Fprintf(stderr, "rdmactl: no command %q\n", args[0])
		usage(stderr)
		return 2
	}
	c := commands[i]
	a, err := c.run(ctx, args[1:])
	if a != nil {
		if perr := show(stdout, a, asJSON); perr != nil {
			err = errors.Join(err, perr)
		}
	}
	var wrong usageError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errProblem):
		return 1
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(stdout, "usage: rdmactl %s [-json] %s\n%s\n", c.name, c.args, c.help)
		return 0
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "rdmactl: %v\nusage: rdmactl %s [-json] %s\n", err, c.name, c.args)
		return 2
	}
	fmt.Fprintln(stderr, "rdmactl:", err)
	return 1
}

// takeJSON takes -json out of the arguments, wherever it is.
func takeJSON(args []string) (found bool, rest []string) {
	for _, a := range args {
		if a == "-json" || a == "--json" {
			found = true
			continue
		}
		rest = append(rest, a)
	}
	return found, rest
}

func show(w io.Writer, a result, asJSON bool) error {
	if !asJSON {
		return a.text(w)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(a)
}

// usageError is a wrong command line.
type usageError string

func (e usageError) Error() string { return string(e) }

// flags parses the flags of a command, which takes at least least and at most
// most further arguments.
func flags(args []string, least, most int, define func(*flag.FlagSet)) ([]string, error) {
	fs := flag.NewFlagSet("rdmactl", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	if define != nil {
		define(fs)
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, usageError(err.Error())
	}
	switch {
	case fs.NArg() < least:
		return nil, usageError("an argument is missing")
	case fs.NArg() > most:
		return nil, usageError(fmt.Sprintf("unexpected arguments %q", fs.Args()[most:]))
	}
	return fs.Args(), nil
}
