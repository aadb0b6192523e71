package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the table of docs/devices.md from the reports in docs/devices")

// The reports that were sent in, and the page that shows them.
const (
	devicesPage    = "../../docs/devices.md"
	devicesReports = "../../docs/devices/*.json"
	devicesHeading = "| report | driver, vendor:part | firmware | kernel | rdma-core | link, MTU | works | refused | WRONG | not tried |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
)

// pageRow returns the row of the page for the report in the file NAME.json, or an error if the
// report lacks something that a column needs.
func (r runReport) pageRow(name string) (string, error) {
	a := r.About
	driver := fmt.Sprintf("%s %04x:%04x", a.Driver, a.VendorID, a.VendorPart)
	for what, v := range map[string]string{"driver": a.Driver, "kernel": a.Kernel, "rdma_core": a.RDMACore, "link_layer": a.LinkLayer, "goverbs": a.Goverbs} {
		if v == "" {
			return "", fmt.Errorf("%s: the report has no %q", name, what)
		}
	}
	var bad []string
	for _, x := range r.Results {
		switch x.Result {
		case wrong:
			bad = append(bad, x.Feature)
		case works, refused, untried:
		default:
			return "", fmt.Errorf("%s: %s: a result %q", name, x.Feature, x.Result)
		}
	}
	wrongs := fmt.Sprint(len(bad))
	if len(bad) > 0 {
		wrongs += ": " + strings.Join(bad, "; ")
	}
	if a.DriverVersion != "in-tree" {
		driver += " (" + a.DriverVersion + ")"
	}
	cells := []string{fmt.Sprintf("[%s](devices/%[1]s.json)", name), driver, cmp.Or(a.Firmware, "-"), a.Kernel, a.RDMACore, fmt.Sprintf("%s, %d", a.LinkLayer, a.MTU),
		fmt.Sprint(r.count(works)), fmt.Sprint(r.count(refused)), wrongs, fmt.Sprint(r.count(untried))}
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(strings.Map(printable, c), "|", "/")
	}
	return "| " + strings.Join(cells, " | ") + " |\n", nil
}

// readReport reads a report as it was sent in, strictly, and without addresses.
func readReport(b []byte) (r runReport, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, err
	}
	for _, g := range r.About.GIDs {
		if g.Address != "" {
			return r, fmt.Errorf("it has the address of GID %d", g.Index)
		}
	}
	for _, x := range r.Results {
		if hideAddresses(x.Note) != x.Note {
			return r, fmt.Errorf("the note of %q has an address", x.Feature)
		}
	}
	return r, nil
}

// The page has a row for each report, and each row is what its report says. With -update the page
// is written.
func TestDevicesPage(t *testing.T) {
	files, err := filepath.Glob(devicesReports)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	features := featureTable(t)
	table := devicesHeading
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		r, err := readReport(b)
		require.NoError(t, err, f)
		for _, x := range r.Results {
			require.Contains(t, features, x.Feature, f)
		}
		row, err := r.pageRow(strings.TrimSuffix(filepath.Base(f), ".json"))
		require.NoError(t, err)
		table += row
	}
	b, err := os.ReadFile(devicesPage)
	require.NoError(t, err)
	before, after, found := strings.Cut(string(b), devicesHeading)
	require.True(t, found, "the page has no such heading")
	for strings.HasPrefix(after, "|") {
		_, after, _ = strings.Cut(after, "\n")
	}
	page := before + table + after
	if *update {
		require.NoError(t, os.WriteFile(devicesPage, []byte(page), 0o644))
		return
	}
	require.Equal(t, page, string(b), "go test ./cmd/rdmactl -run TestDevicesPage -update writes the table")
}

// A report has what the columns need; one that lacks it, or has addresses, is refused.
func TestRowOfAReport(t *testing.T) {
	r := sampleRun()
	r.About.VendorID, r.About.VendorPart = 0x2c9, 4125
	var b bytes.Buffer
	require.NoError(t, show(&b, r, true))
	back, err := readReport(b.Bytes())
	require.NoError(t, err)
	row, err := back.pageRow("connectx-6-dx")
	require.NoError(t, err)
	require.Equal(t, "| [connectx-6-dx](devices/connectx-6-dx.json) | mlx5 02c9:101d | 22.36.1010 | 6.12.0 | 56.0 | Ethernet, 4096 | 1 | 1 | 1: FLUSH | 1 |\n", row)
	require.Equal(t, strings.Count(devicesHeading, "|"), strings.Count(row, "|")*2, "cells")

	_, err = readReport(bytes.Replace(b.Bytes(), []byte(`"kernel"`), []byte(`"kernels"`), 1))
	require.ErrorContains(t, err, "kernels")
	_, err = readReport(bytes.Replace(b.Bytes(), []byte(`"kind": "IPv4"`), []byte(`"kind": "IPv4", "address": "10.0.0.1"`), 1))
	require.ErrorContains(t, err, "address")
	back.About.RDMACore = ""
	_, err = back.pageRow("x")
	require.ErrorContains(t, err, "rdma_core")
	r.Results[0].Result = "WORKS"
	_, err = r.pageRow("x")
	require.ErrorContains(t, err, `"WORKS"`)
}
