package verbs

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// Parked waits until a goroutine waits in a function, for what the runtime calls it in a
// trace: "IO wait", "select", "sync.Mutex.Lock". Both are as the trace has them.
func Parked(t testing.TB, wait, function string) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for trace := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			head, calls, _ := strings.Cut(trace, "\n")
			if strings.Contains(head, "["+wait) && strings.Contains(calls, function+"(") {
				return
			}
		}
	}
	t.Fatalf("no goroutine is in %s: %s", wait, function)
}
