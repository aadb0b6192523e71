package debian

import (
	"os"
	"strings"
)

// Host returns what the host's os-release(5) file says if the host is a Debian: the number
// of the release, such as "12", and its code name. Both are empty elsewhere.
func Host() (version, codename string) {
	b, _ := os.ReadFile("/etc/os-release")
	return parseRelease(string(b))
}

func parseRelease(file string) (version, codename string) {
	values := make(map[string]string)
	for line := range strings.Lines(file) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = strings.Trim(value, `"`)
	}
	if values["ID"] != "debian" {
		return "", ""
	}
	return values["VERSION_ID"], values["VERSION_CODENAME"]
}
