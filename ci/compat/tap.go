package main

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
)

const longName = 100

var tapLine = regexp.MustCompile(`^(not )?ok\b *(\d*) *-? *(.*)`)

// parseTAP returns the outcomes of what a program prints in the Test Anything Protocol; the names of
// the tests, or their numbers, have a prefix. err is how the program ended: it is an outcome if no test has failed. Tests
// of one name count once.
func parseTAP(out []byte, prefix string, err error) (all []outcome) {
	at := map[string]int{}
	failed := false
	for line := range strings.Lines(string(out)) {
		m := tapLine.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil {
			continue
		}
		name := prefix + cmp.Or(strings.TrimSpace(m[3]), "#"+m[2])
		if len(name) > longName {
			name = name[:longName] + "..." // some have a value of a mebibyte
		}
		o := outcome{test: name}
		if m[1] != "" && !strings.Contains(m[3], "# TODO") {
			o.detail, failed = "not ok", true
		}
		i, twice := at[o.test]
		if !twice {
			at[o.test] = len(all)
			all = append(all, o)
		} else if o.detail != "" {
			all[i] = o
		}
	}
	if err != nil && !failed {
		all = append(all, outcome{prefix + "(end)", err.Error()})
	}
	return all
}

// parseJUnit returns the outcomes in a file of pytest's --junitxml.
func parseJUnit(b []byte) (all []outcome, err error) {
	var f struct {
		Suites []struct {
			Cases []struct {
				Name     string    `xml:"name,attr"`
				Class    string    `xml:"classname,attr"`
				Failures []message `xml:"failure"`
				Errors   []message `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(b, &f); err != nil {
		return nil, err
	}
	for _, s := range f.Suites {
		for _, c := range s.Cases {
			o := outcome{test: c.Class[strings.LastIndex(c.Class, ".")+1:] + "." + c.Name}
			for _, m := range append(c.Failures, c.Errors...) {
				o.detail, _, _ = strings.Cut(m.Text+" ", "\n")
			}
			all = append(all, o)
		}
	}
	return all, nil
}

type message struct {
	Text string `xml:"message,attr"`
}

// parseGo returns the outcomes of go test -json.
func parseGo(out []byte) (all []outcome, err error) {
	d := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var e struct{ Action, Test string }
		switch err := d.Decode(&e); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return all, err
		}
		switch {
		case e.Test == "":
		case e.Action == "pass":
			all = append(all, outcome{test: e.Test})
		case e.Action == "fail":
			all = append(all, outcome{e.Test, "failed"})
		}
	}
}

var capableLine = regexp.MustCompile(`(?m)^(\S.*?)\s+\[(\w+)\]`)

// parseCapable returns the outcomes of memccapable.
func parseCapable(out []byte) (all []outcome) {
	for _, m := range capableLine.FindAllStringSubmatch(string(out), -1) {
		o := outcome{test: m[1]}
		if m[2] != "pass" && m[2] != "skip" {
			o.detail = m[2]
		}
		all = append(all, o)
	}
	return all
}
