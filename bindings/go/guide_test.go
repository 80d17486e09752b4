//go:build linux

package tompion_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// volatile is what differs between two runs of `tompion print`.
var volatile = regexp.MustCompile(`(?m)^\[[^]]*\] \([^)]*\) \S+:hello:\(\d+\) (\S+ \{ cpu_id = )\d+( \}, \{ vtid = )\d+`)

// TestTheGuideIsTrue builds the guide's program and runs its commands.
func TestTheGuideIsTrue(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guide/go.md")
	if err != nil {
		t.Skipf("the guide is not there: %v", err)
	}
	folder := t.TempDir()
	_, rest, _ := strings.Cut(string(guide), "```go\n// main.go\n")
	source, _, _ := strings.Cut(rest, "```")
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	here, _ := filepath.Abs(".")
	count := 0
	for _, block := range strings.Split(string(guide), "```console\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for _, session := range strings.Split(block, "$ ")[1:] {
			line, expected, _ := strings.Cut(session, "\n")
			found := answer(t, folder, here, line)
			if volatile.ReplaceAllString(found, "$1?$2?") != volatile.ReplaceAllString(expected, "$1?$2?") {
				t.Errorf("%s\nexpected\n%sfound\n%s", line, expected, found)
			}
			count++
		}
	}
	if count < 7 {
		t.Errorf("%d commands", count)
	}
}

// answer runs a line of the guide. Instead of the published module, this one is taken.
func answer(t *testing.T, folder, here, line string) string {
	isQuiet := strings.HasPrefix(line, "go ")
	if module, ok := strings.CutPrefix(line, "go get "); ok {
		line = "go mod edit -require " + module + "@v0.0.0 -replace " + module + "=" + here
	}
	command := exec.Command("sh", "-c", "exec 2>&1; "+line)
	command.Dir = folder
	command.Env = append(tompionCommand(t, "").Env, "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOWORK=off",
		"PATH="+filepath.Dir(recorder(t))+":"+os.Getenv("PATH")+":/usr/local/go/bin")
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	if isQuiet {
		return ""
	}
	return string(out)
}
