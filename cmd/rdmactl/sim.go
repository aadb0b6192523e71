package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/internal/simrules"
)

// simRules are the impairments in a fabric of simulated devices (docs/simhca.md).
type simRules []string

// simEffect is what a rule can do, as cgo/simhca/impair.c reads it.
var simEffect = regexp.MustCompile(`^(delay=[0-9.]+(ns|us|ms|s)|loss=(100|[0-9]{0,2}(\.[0-9]+)?)%|rate=[0-9.]+[kMG]?bit|cut)$`)

func sim(_ context.Context, args []string) (result, error) {
	if len(args) == 0 {
		return nil, usageError("an argument is missing: the name of a fabric")
	}
	file, err := simrules.File(args[0])
	if err != nil {
		return nil, err
	}
	rules, err := readRules(file)
	if err != nil || len(args) == 1 {
		return rules, err
	}
	if len(args) == 2 && args[1] == "clear" {
		return nil, simrules.Clear(file)
	}
	rule, err := simRule(args[1:])
	if err != nil {
		return nil, err
	}
	way := strings.Join(args[1:3], " ") + " "
	rules = slices.DeleteFunc(rules, func(r string) bool { return strings.HasPrefix(r+" ", way) })
	if len(args) > 3 {
		rules = append(rules, rule)
	}
	// The first rule for a way holds.
	slices.SortStableFunc(rules, func(a, b string) int { return strings.Count(a, "*") - strings.Count(b, "*") })
	return rules, simrules.Write(file, rules...)
}

// simRule checks a rule: two addresses, and what happens between them.
func simRule(words []string) (string, error) {
	if len(words) < 2 {
		return "", usageError("a rule is FROM TO and effects")
	}
	for i, w := range words {
		a, err := netip.ParseAddr(w)
		switch {
		case i < 2 && w != "*" && (err != nil || !a.Is4()):
			return "", usageError(fmt.Sprintf("%q is neither an IPv4 address of a device nor *", w))
		case i >= 2 && !simEffect.MatchString(w):
			return "", usageError(fmt.Sprintf("%q is no effect: delay=1ms, loss=10%%, rate=10Gbit or cut", w))
		}
	}
	return strings.Join(words, " "), nil
}

func readRules(file string) (simRules, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	rules := simRules{}
	for line := range strings.Lines(string(text)) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			rules = append(rules, line)
		}
	}
	return rules, nil
}

func (r simRules) text(w io.Writer) error {
	if len(r) == 0 {
		_, err := fmt.Fprintln(w, "no impairments")
		return err
	}
	_, err := fmt.Fprintln(w, strings.Join(r, "\n"))
	return err
}
