//go:build linux

package tompion_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// recorder returns the path of the command `tompion`; the test is skipped without one.
func recorder(t *testing.T) string {
	candidates := []string{os.Getenv("TOMPION_COMMAND"), "../../target/release/tompion", "../../target/debug/tompion"}
	for _, path := range candidates {
		if _, err := os.Stat(path); path != "" && err == nil {
			path, _ = filepath.Abs(path)
			return path
		}
	}
	t.Skip("no command tompion: set TOMPION_COMMAND")
	return ""
}

// run is what a command did.
type run struct {
	*exec.Cmd
	out, err bytes.Buffer
}

// tompionCommand returns a command `tompion …` that runs test programs of this name.
func tompionCommand(t *testing.T, program string, arguments ...string) *run {
	r := &run{Cmd: exec.Command(recorder(t), arguments...)}
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "TOMPION_") && !strings.HasPrefix(variable, "LD_LIBRARY_PATH=") {
			r.Env = append(r.Env, variable)
		}
	}
	r.Env = append(r.Env, programVariable+"="+program)
	r.Stdout, r.Stderr = &r.out, &r.err
	return r
}

// recording is a trace, and what was said while it was made.
type recording struct {
	folder, out, err string
}

// record records one of the programs, with options of `tompion record`.
func record(t *testing.T, options []string, program string, arguments ...string) recording {
	folder := filepath.Join(t.TempDir(), "trace")
	command := append([]string{"record", "-o", folder}, options...)
	command = append(append(command, "--", os.Args[0]), arguments...)
	r := tompionCommand(t, program, command...)
	if err := r.Run(); err != nil {
		if _, ok := err.(*exec.ExitError); !ok {
			t.Fatal(err)
		}
	}
	return recording{folder, r.out.String(), r.err.String()}
}

var circumstances = regexp.MustCompile(`^\[.*\] \(.*\) .*:\((\d+)\) (\S+): \{ cpu_id = (\d+) \}, \{ vtid = (\d+)[^}]*\}(.*)$`)

// lines returns the events of a trace as text: name and fields, without what differs between runs.
func (r recording) lines(t *testing.T) []string {
	if strings.Contains(r.err, "nothing recorded") {
		return nil
	}
	printed := r.printed(t)
	var lines []string
	for _, line := range strings.Split(strings.TrimSuffix(printed, "\n"), "\n") {
		found := circumstances.FindStringSubmatch(line)
		if found == nil {
			if line != "" {
				t.Fatalf("unexpected line: %s\n%s", line, r.err)
			}
			continue
		}
		lines = append(lines, found[2]+strings.TrimPrefix(found[5], ","))
	}
	return lines
}

func (r recording) printed(t *testing.T) string {
	command := tompionCommand(t, "", "print", r.folder)
	if err := command.Run(); err != nil {
		t.Fatalf("print: %v\n%s%s", err, command.err.String(), r.err)
	}
	return command.out.String()
}

// producer returns how the first process has appended.
func (r recording) producer(t *testing.T) string {
	command := tompionCommand(t, "", "stat", "--json", r.folder)
	if err := command.Run(); err != nil {
		t.Fatalf("stat: %v", err)
	}
	var stat struct{ Processes []struct{ Producer string } }
	if err := json.Unmarshal(command.out.Bytes(), &stat); err != nil || len(stat.Processes) == 0 {
		t.Fatalf("stat: %v: %s", err, command.out.String())
	}
	return stat.Processes[0].Producer
}

func expectLines(t *testing.T, r recording, expected ...string) {
	t.Helper()
	if found := r.lines(t); !slices.Equal(found, expected) {
		t.Errorf("expected\n%s\nfound\n%s\n%s", strings.Join(expected, "\n"), strings.Join(found, "\n"), r.err)
	}
}

func TestFieldsOfEveryType(t *testing.T) {
	expectLines(t, record(t, nil, "everything"),
		`t:all { user = 42 }, { i8 = -8, i16 = -16, i32 = -32, i64 = -9223372036854775808, int = -1, u8 = 8, `+
			`u16 = 16, u32 = 32, u64 = 18446744073709551615, uint = 1, x32 = 0xBEEF, addr = 0x1000, port = 8080, `+
			`f32 = 0.5, f64 = -2.25, yes = 1, no = 0, state = ( "running" : container = 3 ), `+
			`large = ( "most" : container = 18446744073709551615 ), text = "orders", _bytes_length = 2, `+
			`bytes = [ [0] = 0x1, [1] = 0xFF ], chars = "chars", array = [ [0] = -1, [1] = 2, [2] = 3 ], `+
			`letter = "ab", _list_length = 2, list = [ [0] = 7, [1] = 8 ], _hexes_length = 1, hexes = [ [0] = 0xA ], `+
			`took = 1500, nest = { name = "in", depth = 2 }, last = "last" }`,
		`t:empty { }`,
		`t:short { a = 1, b = 2 }`,
		`t:text { number = 1, name = "" }`,
		`t:text { number = 2, name = "ends" }`,
		`t:depth { value = -3 }`,
		`t:load { value = 0.75 }`,
		`t:order { id = 0x2A }`,
		`mark:loaded { rows = 4, of = "orders", arg3 = 0.5 }`,
	)
}

func TestLevelsAndNames(t *testing.T) {
	expectLines(t, record(t, []string{"--level", "err"}, "levels"), `t:severe { }`)
	expectLines(t, record(t, []string{"-e", "t:*", "-x", "t:step", "-x", "sev*"}, "levels"), `t:chatty { }`)
	expectLines(t, record(t, []string{"-e", "t:cycle"}, "spans"),
		`t:cycle_begin { deadline_ns = 1000000, number = 3, name = "job" }`, `t:cycle_end { }`)
}

func TestSpansBelongToTheirGoroutines(t *testing.T) {
	expectLines(t, record(t, []string{"-e", "t:work"}, "spans"),
		`t:work_begin { span = 1, parent = 0 }, { number = 1, name = "outer" }`,
		`t:work_begin { span = 2, parent = 1 }, { number = 2, name = "inner" }`,
		`t:work_end { span = 2 }, { }`,
		`t:work_end { span = 1 }, { }`,
		`t:work_begin { span = 3, parent = 0 }, { number = 4, name = "alone" }`,
		`t:work_end { span = 3 }, { }`,
	)
}

func TestFilters(t *testing.T) {
	expectLines(t, record(t, []string{"--filter", `number > 1 && name == "in*"`}, "spans"),
		`t:work_begin { span = 2, parent = 0 }, { number = 2, name = "inner" }`, `t:work_end { span = 2 }, { }`)
	expectLines(t, record(t, []string{"--filter", `rows == 4 && of == "o*"`}, "everything"),
		`mark:loaded { rows = 4, of = "orders", arg3 = 0.5 }`)
	expectLines(t, record(t, []string{"--filter", `user == 42 && state == "run*" && nest.depth == 2`, "-e", "t:all"},
		"everything"), record(t, []string{"-e", "t:all"}, "everything").lines(t)...)
	expectLines(t, record(t, []string{"--filter", `number >= 0 && $comm == "nobody"`}, "everything"))
	if found := len(record(t, []string{"--filter", "number == 5 || $prio > 0", "-e", "t:step"}, "threads", "1", "9").lines(t)); found != 9 {
		t.Errorf("expected all events of a thread with a priority, found %d", found)
	}
}

func TestTextsOfAllSizes(t *testing.T) {
	found := record(t, nil, "sizes")
	var sizes []string
	for _, line := range found.lines(t) {
		number, name, _ := strings.Cut(strings.TrimPrefix(line, "t:text { number = "), ", name = ")
		if expected, _ := strconv.Atoi(number); len(name) != expected+len(`"" }`) {
			t.Errorf("%s has %d characters", number, len(name))
		}
		sizes = append(sizes, number)
	}
	if strings.Join(sizes, " ") != "0 1 7 8 100 128 200 497 600 5000 60000" {
		t.Errorf("found %v", sizes)
	}
	if !strings.Contains(found.err, "1 LOST") {
		t.Errorf("expected one lost event, found %s", found.err)
	}
}

// forms are the options and variables of both write protocols.
var forms = map[string]string{"sections": "", "reserve": "TOMPION_RSEQ=0"}

// recordIn records with a variable in the recorder's environment.
func recordIn(t *testing.T, variable string, options []string, program string, arguments ...string) recording {
	folder := filepath.Join(t.TempDir(), "trace")
	command := append([]string{"record", "-o", folder}, options...)
	command = append(append(command, "--", os.Args[0]), arguments...)
	r := tompionCommand(t, program, command...)
	if variable != "" {
		r.Env = append(r.Env, variable)
	}
	if err := r.Run(); err != nil {
		t.Fatalf("%v\n%s", err, r.err.String())
	}
	return recording{folder, r.out.String(), r.err.String()}
}

// steps checks that events of each thread stand in order, each at most once, and returns how many
// there are of each thread.
func steps(t *testing.T, lines []string) map[int]int {
	t.Helper()
	next, counts := map[int]int{}, map[int]int{}
	for _, line := range lines {
		var thread, n int
		if _, err := fmt.Sscanf(line, "t:step { thread = %d, number = %d }", &thread, &n); err != nil {
			continue
		}
		if n < next[thread] {
			t.Fatalf("thread %d: expected number %d or more, found %d", thread, next[thread], n)
		}
		next[thread] = n + 1
		counts[thread]++
	}
	return counts
}

func TestGoroutinesInBothForms(t *testing.T) {
	for form, variable := range forms {
		t.Run(form, func(t *testing.T) {
			found := recordIn(t, variable, []string{"--subbuf-size", "1M", "--subbufs", "8"}, "threads", "40", "2000")
			if producer := found.producer(t); producer != map[string]string{"sections": "rseq", "reserve": "reserve"}[form] {
				t.Errorf("events were appended by %s", producer)
			}
			counts := steps(t, found.lines(t))
			if len(counts) != 40 {
				t.Errorf("%d goroutines", len(counts))
			}
			for thread, count := range counts {
				if count != 2000 {
					t.Errorf("goroutine %d: %d events\n%s", thread, count, found.err)
				}
			}
		})
	}
}

var summary = regexp.MustCompile(`: ([\d,]+) events of .*?(?:([\d,]+) LOST|none lost)`)

func numbersOf(t *testing.T, text string) (events, lost int) {
	if strings.Contains(text, "nothing recorded") {
		return 0, 0
	}
	found := summary.FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no summary: %s", text)
	}
	parse := func(text string) int {
		n, _ := strconv.Atoi(strings.ReplaceAll(text, ",", ""))
		return n
	}
	return parse(found[1]), parse(found[2])
}

func TestLossesAreCounted(t *testing.T) {
	for form, variable := range forms {
		t.Run(form, func(t *testing.T) {
			found := recordIn(t, variable, []string{"--subbuf-size", "4K", "--subbufs", "2"}, "threads", "8", "20000")
			events, lost := numbersOf(t, found.err)
			if events+lost != 160000 {
				t.Errorf("expected 160000 events or losses, found %d and %d: %s", events, lost, found.err)
			}
			steps(t, found.lines(t))
		})
	}
}

func TestFlightRecordersKeepTheNewest(t *testing.T) {
	for form, variable := range forms {
		t.Run(form, func(t *testing.T) {
			options := []string{"--mode", "overwrite", "--subbuf-size", "4K", "--subbufs", "4"}
			found := recordIn(t, variable, options, "initial", "3", "20000")
			lines := found.lines(t)
			if !slices.Contains(lines, `t:initial { number = 1, name = "settings" }`) {
				t.Error("the initial event is not there")
			}
			if printed := found.printed(t); regexp.MustCompile(`t:initial: \{ cpu_id = \d{3,} `).MatchString(printed) {
				t.Errorf("the initial event has no CPU: %s", printed[:200])
			}
			steps(t, lines)
			if last := lines[len(lines)-1]; !strings.HasSuffix(last, "number = 19999 }") {
				t.Errorf("the last event is %s", last)
			}
			if !strings.Contains(found.err, "overwritten") {
				t.Errorf("nothing was overwritten: %s", found.err)
			}
		})
	}
}

func TestSeveralRecordings(t *testing.T) {
	inner := filepath.Join(t.TempDir(), "inner")
	outer := filepath.Join(t.TempDir(), "outer")
	r := tompionCommand(t, "everything", "record", "-o", outer, "-e", "t:short", "--", recorder(t), "record", "-o", inner,
		"--filter", "number == 1", "--", os.Args[0])
	if err := r.Run(); err != nil {
		t.Fatalf("%v\n%s", err, r.err.String())
	}
	expectLines(t, recording{folder: outer}, `t:short { a = 1, b = 2 }`)
	expectLines(t, recording{folder: inner}, `t:text { number = 1, name = "" }`)
}

func TestChildrenAreRecorded(t *testing.T) {
	expectLines(t, record(t, []string{"-e", "t:*"}, "child"), `t:step { thread = 0, number = 0 }`,
		`t:step { thread = 0, number = 0 }`, `t:step { thread = 9, number = 9 }`)
}

func TestEveryEndKeepsWhatWasRecorded(t *testing.T) {
	for _, end := range []string{"exit", "panic", "signal"} {
		expectLines(t, record(t, nil, "exits", end), `t:step { thread = 1, number = 1 }`)
	}
	expectLines(t, record(t, nil, "exits", "exec"), `t:step { thread = 1, number = 1 }`, `t:severe { }`,
		`t:step { thread = 0, number = 0 }`, `t:chatty { }`)
}

func TestProgramsRecordThemselves(t *testing.T) {
	folder := t.TempDir()
	r := &run{Cmd: exec.Command(os.Args[0])}
	r.Env = append(tompionCommand(t, "levels").Env, "TOMPION_RECORD="+folder,
		"PATH="+filepath.Dir(recorder(t))+":"+os.Getenv("PATH"))
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		// The recorder ends a little after the last program.
		if log, _ := os.ReadFile(filepath.Join(folder, "tompion.log")); strings.Contains(string(log), "events of") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	expectLines(t, recording{folder: folder}, `t:severe { }`, `t:step { thread = 0, number = 0 }`, `t:chatty { }`)
}

// started is a program that talks over its standard streams.
type started struct {
	*run
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t *testing.T, r *run) *started {
	in, err := r.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Stdout = nil
	out, err := r.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Process.Kill() })
	return &started{r, in, bufio.NewReader(out)}
}

func (s *started) line(t *testing.T) string {
	t.Helper()
	line, err := s.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%v\n%s", err, s.run.err.String())
	}
	return strings.TrimSuffix(line, "\n")
}

func (s *started) say(t *testing.T, line string) string {
	t.Helper()
	if _, err := fmt.Fprintln(s.in, line); err != nil {
		t.Fatal(err)
	}
	return s.line(t)
}

// program starts one of the programs without a recorder.
func program(t *testing.T, name string, arguments ...string) *started {
	recorder(t)
	r := &run{Cmd: exec.Command(os.Args[0], arguments...)}
	r.Env = append(os.Environ(), programVariable+"="+name)
	r.Stderr = &r.err
	return start(t, r)
}

func TestRulesChangeWhileAProgramRuns(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "trace")
	s := start(t, tompionCommand(t, "steps", "record", "-o", folder, "-e", "t:step", "--", os.Args[0]))
	s.line(t)
	name := strconv.Itoa(s.Process.Pid)
	s.say(t, "1")
	change := func(options ...string) {
		r := tompionCommand(t, "", append([]string{"rules", name}, options...)...)
		if err := r.Run(); err != nil {
			t.Fatalf("%v: %s%s", err, r.err.String(), r.out.String())
		}
	}
	change("-e", "t:text")
	s.say(t, "2")
	change("--filter", "number >= 4", "-e", "t:*")
	s.say(t, "3")
	s.say(t, "4")
	change("-x", "*")
	s.say(t, "5")
	change("-e", "t:step")
	s.say(t, "6")
	s.in.Close()
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	expectLines(t, recording{folder: folder, err: s.run.err.String()}, `t:step { thread = 0, number = 1 }`,
		`t:text { number = 2, name = "name" }`, `t:step { thread = 0, number = 4 }`,
		`t:text { number = 4, name = "name" }`, `t:step { thread = 0, number = 6 }`)
}

// attach records a running program, and returns once it is recorded.
func attach(t *testing.T, s *started, folder string) *run {
	r := tompionCommand(t, "", "record", "-o", folder, "-p", strconv.Itoa(s.Process.Pid))
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Process.Kill() })
	return r
}

func TestRunningProgramsAreAttachedTo(t *testing.T) {
	s := program(t, "steps")
	s.line(t)
	for round := range 3 {
		folder := filepath.Join(t.TempDir(), "trace")
		r := attach(t, s, folder)
		for !isWritten(folder) {
			s.say(t, strconv.Itoa(round))
			time.Sleep(20 * time.Millisecond)
		}
		_ = r.Process.Signal(syscall.SIGINT)
		_ = r.Wait()
		lines := recording{folder: folder, err: r.err.String()}.lines(t)
		if len(lines) == 0 || lines[0] != fmt.Sprintf("t:step { thread = 0, number = %d }", round) {
			t.Errorf("round %d: found %v\n%s", round, lines, r.err.String())
		}
	}
}

// isWritten says whether a trace has events of a program.
func isWritten(folder string) bool {
	streams, _ := filepath.Glob(filepath.Join(folder, "user", "*", "stream*"))
	for _, stream := range streams {
		if info, err := os.Stat(stream); err == nil && info.Size() > 0 {
			return true
		}
	}
	return false
}

func TestSnapshotsAreAskedFor(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "trace")
	r := tompionCommand(t, "snapshot", "record", "-o", folder, "--mode", "overwrite", "--", os.Args[0])
	r.Stderr = nil
	pipe, err := r.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, r)
	if found := s.line(t); found != "true" {
		t.Errorf("found %s", found)
	}
	if said, err := bufio.NewReader(pipe).ReadString('\n'); !strings.Contains(said, "saved 1 events, as go.test") {
		t.Errorf("expected a snapshot, found %s (%v)", said, err)
	}
	fmt.Fprintln(s.in)
	_ = s.Wait()
	expectLines(t, recording{folder: folder}, `t:step { thread = 1, number = 1 }`)
}

func TestProgramsThatAreNotRecordedHaveNothingMore(t *testing.T) {
	for variable, expected := range map[string]int{"": 2, "TOMPION_ATTACH=0": 1, "TOMPION_DISABLE=1": 1, "TOMPION_SESSION=nowhere": 2} {
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), programVariable+"=unrecorded", "TOMPION_SOCKET=/nonexistent", variable)
		out, err := command.Output()
		var isEnabled bool
		var threads, goroutines int
		if _, scanned := fmt.Sscan(string(out), &isEnabled, &threads, &goroutines); err != nil || scanned != nil {
			t.Fatalf("%v %v %s", err, scanned, out)
		}
		if isEnabled || goroutines != expected {
			t.Errorf("%s: expected %d goroutines, found %d (%d threads), enabled %v", variable, expected, goroutines, threads, isEnabled)
		}
	}
}

func TestProgramsOutliveTheirRecorder(t *testing.T) {
	for form, variable := range forms {
		t.Run(form, func(t *testing.T) {
			s := program(t, "lasting")
			s.line(t)
			folder := filepath.Join(t.TempDir(), "trace")
			r := tompionCommand(t, "", "record", "-o", folder, "-p", strconv.Itoa(s.Process.Pid))
			if variable != "" {
				r.Env = append(r.Env, variable)
			}
			if err := r.Start(); err != nil {
				t.Fatal(err)
			}
			for !isWritten(folder) {
				time.Sleep(10 * time.Millisecond)
			}
			_ = r.Process.Kill()
			_ = r.Wait()
			time.Sleep(50 * time.Millisecond)
			if found := s.say(t, ""); found != "still here true false" {
				t.Errorf("found %s: %s", found, s.run.err.String())
			}
			if err := s.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// kills is how many programs are killed in each form.
func kills() int {
	if os.Getenv("TOMPION_FULL") == "1" {
		return 200
	}
	return 3
}

func TestKilledProgramsLeaveWholeRecords(t *testing.T) {
	const goroutines = 6
	for form, variable := range forms {
		t.Run(form, func(t *testing.T) {
			for range kills() {
				counts := filepath.Join(t.TempDir(), "counts")
				if err := os.WriteFile(counts, make([]byte, 4096), 0o600); err != nil {
					t.Fatal(err)
				}
				folder := filepath.Join(t.TempDir(), "trace")
				wait := fmt.Sprintf("0.%03d", 10+rand.Intn(40))
				r := tompionCommand(t, "counted", "record", "-o", folder, "--subbuf-size", "16M", "--subbufs", "8", "--",
					"timeout", "-s", "KILL", wait, os.Args[0], counts, strconv.Itoa(goroutines))
				if variable != "" {
					r.Env = append(r.Env, variable)
				}
				_ = r.Run()
				checkKilled(t, recording{folder: folder, err: r.err.String()}, readCounts(counts)[:goroutines])
				os.RemoveAll(folder)
			}
		})
	}
}

// checkKilled checks that all that had returned is there, once and in order, or was lost in a full
// ring; and at most one event more of each goroutine.
func checkKilled(t *testing.T, found recording, done []uint64) {
	t.Helper()
	next := make([]uint64, len(done))
	gaps := uint64(0)
	for _, line := range found.lines(t) {
		var thread, n uint64
		if _, err := fmt.Sscanf(line, "t:step { thread = %d, number = %d }", &thread, &n); err != nil {
			if _, err := fmt.Sscanf(line, `t:text { number = %d, name = "some text" }`, &n); err != nil {
				t.Fatalf("a torn record: %s", line)
			}
			thread, n = n>>32, n&0xffffffff
		}
		if n < next[thread] {
			t.Fatalf("goroutine %d: expected %d or more, found %d", thread, next[thread], n)
		}
		gaps += n - next[thread]
		next[thread] = n + 1
	}
	_, lost := numbersOf(t, found.err)
	for thread := range done {
		if next[thread] > done[thread]+1 {
			t.Errorf("goroutine %d had recorded %d, the trace has %d", thread, done[thread], next[thread])
		}
		if next[thread] < done[thread] {
			gaps += done[thread] - next[thread]
		}
	}
	if gaps > uint64(lost) {
		t.Errorf("%d events are missing, %d were counted as lost\n%s", gaps, lost, found.err)
	}
}
