package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// entry is a reason for which tests do not run.
type entry struct {
	device string
	number map[string]int // of tests, by release; nil: it depends on the host
	why    string         // as the test says it, or the name of one that fails
	fails  bool
}

// list is skipped.txt.
type list []entry

// parseList reads lines of four columns with bars between them: the device, how many
// tests, what these say, and what is behind it. The number is one for each release
// ("bookworm 3, trixie 4"), or "host" where it depends on the host, or "fails" for a
// test that fails, which the third column names then. Empty lines and comments (#) do
// not count.
func parseList(text string) (list, error) {
	var l list
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		f := strings.Split(line, "|")
		if len(f) != 4 {
			return nil, fmt.Errorf("line %d has %d columns, not 4", i+1, len(f))
		}
		for k := range f {
			f[k] = strings.TrimSpace(f[k])
		}
		e := entry{device: f[0], why: f[2]}
		switch {
		case f[0] == "" || f[2] == "" || f[3] == "":
			return nil, fmt.Errorf("line %d: something is missing", i+1)
		case f[1] == "fails":
			e.fails = true
		case f[1] != "host":
			e.number = map[string]int{}
			for _, of := range strings.Split(f[1], ",") {
				release, n, _ := strings.Cut(strings.TrimSpace(of), " ")
				number, err := strconv.Atoi(n)
				if err != nil {
					return nil, errors.Join(fmt.Errorf("line %d: %q", i+1, of), err)
				}
				e.number[release] = number
			}
		}
		l = append(l, e)
	}
	return l, nil
}

// judge says what is otherwise than listed.
func (l list) judge(device, release string, outcomes []outcome) (wrong []string) {
	skipped, failed, ok := map[string]int{}, map[string]string{}, 0
	for _, o := range outcomes {
		switch o.what {
		case "ok":
			ok++
		case "skipped":
			skipped[o.why]++
		default:
			failed[o.test] = o.why
		}
	}
	if ok == 0 {
		wrong = append(wrong, "no test has passed")
	}
	for _, e := range l {
		switch {
		case e.device != device:
			continue
		case e.fails:
			if _, is := failed[e.why]; !is {
				wrong = append(wrong, e.why+" is listed, and does not fail")
			}
			delete(failed, e.why)
			continue
		case e.number != nil && skipped[e.why] != e.number[release]:
			wrong = append(wrong, fmt.Sprintf("%d tests are skipped, not %d: %s", skipped[e.why], e.number[release], e.why))
		}
		delete(skipped, e.why)
	}
	for why, n := range skipped {
		wrong = append(wrong, fmt.Sprintf("%d tests are skipped, and not listed: %s", n, why))
	}
	for test, why := range failed {
		wrong = append(wrong, fmt.Sprintf("%s fails: %s", test, why))
	}
	slices.Sort(wrong)
	return wrong
}
