package main

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cache/cacheprom"
	"github.com/goverbs/goverbs/cache/cluster"
	"github.com/goverbs/goverbs/cache/gateway"
	"github.com/goverbs/goverbs/cache/server"
	"github.com/goverbs/goverbs/internal/prom"
)

// exported returns the names that a scrape of a server, and of programs with clients, has, each with
// its labels.
func exported(t *testing.T) map[string][]string {
	g, err := gateway.New(gateway.Config{Store: &remote{}})
	require.NoError(t, err)
	names := map[string][]string{}
	desc := regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: \{([^}]*)\}`)
	for _, c := range []prometheus.Collector{
		prom.New[server.Stats]("rdmacached_", slices.Concat(metrics, distributions), "tenant", nil),
		prom.New[server.Refused]("rdmacached_", refused, "", nil), prom.New[cluster.Status]("rdmacached_cluster_", memberMetrics, "", nil),
		gatewayCollector(g), shortages(), cacheprom.New(nil), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		ch := make(chan *prometheus.Desc, 100)
		c.Describe(ch)
		close(ch)
		for d := range ch {
			m := desc.FindStringSubmatch(d.String())
			require.NotNil(t, m, d)
			labels := append(strings.Split(m[2], ","), "instance")
			if names[m[1]] = labels; strings.HasSuffix(m[1], "_seconds") {
				names[m[1]+"_bucket"], names[m[1]+"_count"], names[m[1]+"_sum"] = append(labels, "le"), labels, labels
			}
		}
	}
	require.Greater(t, len(names), 50)
	return names
}

var (
	metricName = regexp.MustCompile(`\b(?:rdmacached|cache_client|process|go)_\w+`)
	rated      = regexp.MustCompile(`rate\((\w+)`)
	grouped    = regexp.MustCompile(`by \(([^)]*)\)`)
	legend     = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// The dashboard names only metrics and labels that there are, and rates only those that rise.
func TestDashboard(t *testing.T) {
	b, err := os.ReadFile("../../deploy/grafana.json")
	require.NoError(t, err)
	var d struct {
		Panels []struct {
			ID          int
			Type, Title string
			Targets     []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Name, Query string }
		}
	}
	require.NoError(t, json.Unmarshal(b, &d))
	names, ids, seen := exported(t), map[int]bool{}, map[string]bool{}
	check := func(expr string) (found []string) {
		found = metricName.FindAllString(expr, -1)
		require.NotEmpty(t, found, expr)
		for _, n := range found {
			require.Contains(t, names, n, expr)
			seen[n] = true
		}
		return found
	}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		require.Equal(t, p.Type == "row", len(p.Targets) == 0, p.Title)
		for _, q := range p.Targets {
			found := check(q.Expr)
			require.Equal(t, strings.Count(q.Expr, "("), strings.Count(q.Expr, ")"), q.Expr)
			for _, m := range rated.FindAllStringSubmatch(q.Expr, -1) {
				require.Regexp(t, "_(total|count|bucket)$", m[1], q.Expr)
			}
			var by []string
			for _, m := range grouped.FindAllStringSubmatch(q.Expr, -1) {
				for _, label := range strings.Split(m[1], ",") {
					by = append(by, strings.TrimSpace(label))
					require.Contains(t, names[found[0]], by[len(by)-1], q.Expr)
				}
			}
			for _, m := range legend.FindAllStringSubmatch(q.LegendFormat, -1) {
				if strings.Contains(q.Expr, "sum") {
					require.Contains(t, by, m[1], q.Expr)
				}
			}
		}
	}
	for _, v := range d.Templating.List {
		if v.Name != "datasource" {
			check(v.Query)
		}
	}
	for _, n := range []string{"rdmacached_evicted_age_seconds_bucket", "rdmacached_size_range_bytes", "rdmacached_clients", "rdmacached_connections_refused_total",
		"rdmacached_quarantine_bytes", "rdmacached_request_seconds_bucket", "cache_client_operation_seconds_bucket", "rdmacached_gateway_connections_rejected_total",
		"rdmacached_cluster_shards", "rdmacached_cluster_left_seconds", "rdmacached_cluster_takeovers_total"} {
		require.Contains(t, seen, n)
	}
}
