package report

import (
	"html/template"
	"io"
	"path/filepath"
	"time"
)

// Environment is where and when a report was made.
type Environment struct {
	Time                             time.Time
	System, Kernel, Processor, Build string // Build: what goverbs and Go are
}

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>goverbs: benchmarks</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; color: #1d1d1f; background: #fff; max-width: 76rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 3rem; border-top: 1px solid #ddd; padding-top: 1rem }
nav a { margin-right: 1rem }
svg { display: block; max-width: 100%; height: auto; margin: 1.5rem 0; font: 12px system-ui, sans-serif; fill: #1d1d1f }
svg .title { font-weight: 600; font-size: 14px }
svg .grid { stroke: #e4e4e4 }
svg .mark { stroke: #1d1d1f; stroke-dasharray: 3 3 }
table { border-collapse: collapse; font-size: 13px }
td, th { padding: .15rem .6rem; text-align: left; border-bottom: 1px solid #eee; white-space: nowrap }
td + td { font-variant-numeric: tabular-nums }
details { overflow-x: auto }
dt { float: left; clear: left; width: 9rem; color: #666 } dd { margin-left: 9rem }
</style>
<h1>goverbs: benchmarks</h1>
<p>Each row compares goverbs with a baseline in the same run, pair by pair; a ratio has the interval of its median. For times and
bytes a ratio below 1 is better, for rates one above. docs/benchmarks.md has the method, docs/benchmarks/README.md says what each
row compares.</p>
<dl>
<dt>page made</dt><dd>{{.Environment.Time.UTC.Format "2006-01-02 15:04"}} UTC</dd>
<dt>goverbs</dt><dd>{{.Environment.Build}}</dd>
<dt>system</dt><dd>{{.Environment.System}}, Linux {{.Environment.Kernel}}</dd>
<dt>processor</dt><dd>{{.Environment.Processor}}</dd>
</dl>
<p>Tables in docs/benchmarks are of the machine that docs/benchmarks.md describes, those in build/bench of this one.</p>
<nav>{{range .Tables}}<a href="#{{.Name}}">{{.Name}}</a>{{end}}</nav>
{{range .Tables}}
<section id="{{.Name}}">
<h2>{{.Name}}</h2>
<p>{{.File}}, {{len .Cells}} rows{{with .Count}}: {{.}}{{end}}. To measure: <code>make bench SUITE={{.Suite}}</code></p>
{{range .Pictures}}<figure>{{.}}</figure>
{{end}}
<details>
<summary>all rows</summary>
<table>
<tr>{{range .Heading}}<th>{{.}}</th>{{end}}</tr>
{{range .Cells}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table>
</details>
</section>
{{end}}
</html>
`))

// section is a table as the page shows it.
type section struct {
	*table
	Suite, Count string
	Pictures     []template.HTML
}

// Write writes the page of all tables: of each suite that of the last run, in the folder fresh, or
// else the one in kept. It returns the number of tables.
func Write(w io.Writer, fresh, kept string, e Environment) (int, error) {
	var sections []section
	for _, name := range append(append([]string{}, suites...), hitRates) {
		t, err := read(fresh, kept, name)
		if err != nil {
			return 0, err
		}
		if t == nil {
			continue
		}
		s := section{table: t, Suite: name, Count: t.count(), Pictures: t.pictures()}
		if name == hitRates {
			s.Suite = "cache"
		}
		t.File = filepath.ToSlash(t.File)
		sections = append(sections, s)
	}
	return len(sections), page.Execute(w, struct {
		Environment Environment
		Tables      []section
	}{e, sections})
}
