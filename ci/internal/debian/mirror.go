package debian

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// hostMirror returns the Debian archive that this host installs from, or
// $LAB_MIRROR.
func hostMirror() (string, error) {
	if m := os.Getenv("LAB_MIRROR"); m != "" {
		return strings.TrimSuffix(m, "/"), nil
	}
	files, _ := filepath.Glob("/etc/apt/sources.list.d/*")
	for _, f := range append(files, "/etc/apt/sources.list") {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		if m := findMirror(string(b), os.ReadFile); m != "" {
			return m, nil
		}
	}
	return "", errors.New("this host has no Debian package source: set LAB_MIRROR to the address of one")
}

var (
	oneLine = regexp.MustCompile(`(?m)^deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s`)
	deb822  = regexp.MustCompile(`(?m)^URIs:\s*(\S+)`)
)

// findMirror finds an archive in the text of a sources file of either format.
// Debian's cloud images name a list of mirrors, a file.
func findMirror(sources string, readFile func(string) ([]byte, error)) string {
	for _, re := range []*regexp.Regexp{oneLine, deb822} {
		for _, m := range re.FindAllStringSubmatch(sources, -1) {
			uri := m[1]
			if list, ok := strings.CutPrefix(uri, "mirror+file:"); ok {
				b, _ := readFile("/" + strings.TrimLeft(list, "/"))
				uri, _, _ = strings.Cut(strings.TrimSpace(string(b)), "\n")
				uri = strings.TrimSpace(uri)
			}
			uri = strings.TrimSuffix(uri, "/")
			if strings.HasPrefix(uri, "http") && strings.HasSuffix(uri, "/debian") {
				return uri
			}
		}
	}
	return ""
}
