package report

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"image"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// browser returns the program that BROWSER names, or one that is there.
func browser(t *testing.T) string {
	t.Helper()
	if named := os.Getenv("BROWSER"); named != "" {
		path, err := exec.LookPath(named)
		require.NoError(t, err)
		return path
	}
	for _, name := range []string{"chromium-headless-shell", "chromium", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("needs Chromium")
	return ""
}

// box is where the browser has put something, in pixels of a picture or the page.
type box struct {
	Text, Fill               string
	Left, Top, Right, Bottom float64
}

func (b box) in(o box) bool {
	return b.Left >= -1 && b.Top >= -1 && b.Right <= o.Right-o.Left+1 && b.Bottom <= o.Bottom-o.Top+1
}

// meets reports whether two boxes share more than their edges; lines of text that follow each other do not.
func (b box) meets(o box) bool {
	return min(b.Right, o.Right)-max(b.Left, o.Left) > 1 && min(b.Bottom, o.Bottom)-max(b.Top, o.Top) > 3
}

// layout is what measuring writes into the page.
type layout struct {
	Height   float64
	Pictures []struct {
		Box                box
		Texts, Keys, Marks []box // Keys are the circles beside the names of the sides
	}
}

const measuring = `<pre id="layout"></pre><script>
const box = (e, x, y) => { const r = e.getBoundingClientRect(); return {Text: e.textContent, Fill: e.getAttribute('fill') || '',
	Left: r.left - x, Top: r.top - y, Right: r.right - x, Bottom: r.bottom - y} };
const all = (e, what, x, y) => [...e.querySelectorAll(what)].map(c => box(c, x, y));
document.getElementById('layout').textContent = JSON.stringify({
	Height: document.documentElement.scrollHeight,
	Pictures: [...document.querySelectorAll('svg')].map(svg => {
		const r = svg.getBoundingClientRect();
		return {Box: {...box(svg, 0, 0), Text: svg.getAttribute('aria-label')}, Texts: all(svg, 'text', r.left, r.top),
			Keys: all(svg, 'circle:not(:has(title))', r.left, r.top), Marks: all(svg, 'circle:has(title)', 0, 0)};
	})});
</script>`

// What a reader sees in a browser: no text of a picture is cut off or lies over another, and each value
// is painted where it stands.
func TestBrowser(t *testing.T) {
	program, dir := browser(t), t.TempDir()
	run := func(page string, args ...string) string {
		path := filepath.Join(dir, "page.html")
		require.NoError(t, os.WriteFile(path, []byte(page), 0o600))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		args = append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--user-data-dir=" + dir}, args...)
		var out, complaints bytes.Buffer
		c := exec.CommandContext(ctx, program, append(args, "file://"+path)...)
		c.Stdout, c.Stderr = &out, &complaints
		require.NoError(t, c.Run(), complaints.String())
		return out.String()
	}
	// In columns: a high page takes long to paint.
	page := strings.Replace(written(t, t.TempDir()), "</style>", "body { max-width: none; columns: 4 } figure { break-inside: avoid; margin: 0 }</style>", 1)
	dom := run(strings.Replace(page, "</html>", measuring+"</html>", 1), "--window-size=4200,1000", "--dump-dom")
	found := regexp.MustCompile(`(?s)<pre id="layout">(.*?)</pre>`).FindStringSubmatch(dom)
	require.NotNil(t, found, "%.1000s", dom)
	var l layout
	require.NoError(t, json.Unmarshal([]byte(html.UnescapeString(found[1])), &l))
	require.Len(t, l.Pictures, strings.Count(page, "<svg"))

	shot := filepath.Join(dir, "page.png")
	run(page, fmt.Sprintf("--window-size=4200,%d", int(l.Height)), "--screenshot="+shot)
	f, err := os.Open(shot)
	require.NoError(t, err)
	defer f.Close()
	painted, err := png.Decode(f)
	require.NoError(t, err)

	for _, p := range l.Pictures {
		name := p.Box.Text
		for i, text := range p.Texts {
			require.True(t, text.in(p.Box), "%s: %q is cut off: %+v", name, text.Text, text)
			for _, other := range append(p.Texts[:i:i], p.Keys...) {
				require.False(t, text.meets(other), "%s: %q lies over %q", name, text.Text, other.Text)
			}
		}
		require.NotEmpty(t, p.Marks, name)
		for _, m := range p.Marks {
			if at := at(painted, m); covering(p.Marks, m) == 1 { // else it may be a mixture
				require.InDeltaSlice(t, channels(t, m.Fill), at, 8, "%s: %s", name, m.Text)
			} else {
				require.NotEqual(t, channels(t, "#ffffff"), at, "%s: %s", name, m.Text)
			}
		}
	}
}

// at returns the channels of the colour in the middle of a box.
func at(painted image.Image, b box) []int {
	c := color.NRGBAModel.Convert(painted.At(int((b.Left+b.Right)/2), int((b.Top+b.Bottom)/2))).(color.NRGBA)
	return []int{int(c.R), int(c.G), int(c.B)}
}

func channels(t *testing.T, colour string) []int {
	c := make([]int, 3)
	_, err := fmt.Sscanf(colour, "#%02x%02x%02x", &c[0], &c[1], &c[2])
	require.NoError(t, err, colour)
	return c
}

// covering returns how many marks touch the middle of m, which is one of them.
func covering(marks []box, m box) (n int) {
	x, y := (m.Left+m.Right)/2, (m.Top+m.Bottom)/2
	for _, o := range marks {
		if o.Left-1 <= x && x <= o.Right+1 && o.Top-1 <= y && y <= o.Bottom+1 {
			n++
		}
	}
	return n
}
