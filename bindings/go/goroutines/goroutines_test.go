package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// recorder returns the path of the command `tompion`; the test is skipped without one.
func recorder(t *testing.T) string {
	for _, path := range []string{os.Getenv("TOMPION_COMMAND"), "../../../target/release/tompion", "../../../target/debug/tompion"} {
		if _, err := os.Stat(path); path != "" && err == nil {
			path, _ = filepath.Abs(path)
			return path
		}
	}
	t.Skip("no command tompion: set TOMPION_COMMAND")
	return ""
}

func output(t *testing.T, folder, name string, arguments ...string) string {
	t.Helper()
	command := exec.Command(name, arguments...)
	command.Dir = folder
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "TOMPION_") && !strings.HasPrefix(variable, "LD_LIBRARY_PATH=") {
			command.Env = append(command.Env, variable)
		}
	}
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, arguments, err, out)
	}
	return string(out)
}

var printed = regexp.MustCompile(`^\[(\d+):(\d+):(\d+)\.(\d+)\] .*?:\(\d+\) (\S+): .*?vtid = (\d+) \}(.*)$`)

// TestGoroutinesRunWhereTheirEventsAre records a server, converts what its run-time has recorded,
// and compares both: whenever the program has recorded an event on a thread, a goroutine ran there.
func TestGoroutinesRunWhereTheirEventsAre(t *testing.T) {
	tompion := recorder(t)
	folder := t.TempDir()
	output(t, "..", "go", "build", "-o", filepath.Join(folder, "server"), "./examples/server")
	output(t, folder, tompion, "record", "-o", "trace", "--subbuf-size", "1M", "--", "./server", "-clients", "50", "-for", "300ms",
		"-trace", "go.trace")
	runtimeTrace, recording := filepath.Join(folder, "go.trace"), filepath.Join(folder, "trace")
	told, err := run(filepath.Join(folder, "goroutines"), "", recording, runtimeTrace)
	if err != nil {
		t.Fatal(err)
	}
	inside := map[string]int{}
	events, states := 0, map[string]int{}
	for _, line := range strings.Split(output(t, folder, tompion, "print", "trace", "goroutines"), "\n") {
		found := printed.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		name, thread := found[5], found[6]
		switch {
		case name == "go:state":
			states[found[7]]++
		case strings.HasPrefix(name, "go:syscall") || name == "go:phase":
		case strings.HasPrefix(name, "go:") && strings.HasSuffix(name, "_begin"):
			inside[thread]++
		case strings.HasPrefix(name, "go:"):
			inside[thread]--
		default:
			events++
			// The run-time's clock has steps of 64 ns; the two orders may differ at a border.
			if inside[thread] != 1 {
				t.Errorf("%d goroutines run on the thread of %s", inside[thread], line)
			}
		}
	}
	if events < 1000 || !strings.Contains(fmt.Sprint(states), `"Waiting"`) {
		t.Errorf("%d events, states %v, %s", events, states, told)
	}
	goroutines, _ := strconv.Atoi(strings.Fields(told)[3])
	if goroutines < 100 {
		t.Errorf("expected 100 goroutines or more, found %s", told)
	}
}

func TestOtherFilesAreRefused(t *testing.T) {
	folder := t.TempDir()
	if _, err := run(filepath.Join(folder, "out"), "", folder, "main.go"); err == nil {
		t.Error("an empty folder is no recording")
	}
	process := filepath.Join(folder, "user", "one")
	if err := os.MkdirAll(process, 0o755); err != nil {
		t.Fatal(err)
	}
	metadata := "/* CTF 1.8 */\nenv {\n\tvpid = 1;\n};\n\nclock {\n\tname = \"monotonic\";\n\tfreq = 1000000000;\n};\n"
	if err := os.WriteFile(filepath.Join(process, "metadata"), []byte(metadata), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := run(filepath.Join(folder, "out"), "", folder, "main.go"); err == nil || !strings.Contains(err.Error(), "no trace of Go") {
		t.Errorf("a source is no trace: %v", err)
	}
	if _, err := os.Stat(filepath.Join(folder, "out")); err == nil {
		t.Error("a folder was made for nothing")
	}
}
