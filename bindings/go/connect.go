//go:build linux && (amd64 || arm64)

package tompion

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tompion/tompion/bindings/go/internal/protocol"
	"github.com/tompion/tompion/bindings/go/internal/ring"
)

// Version is the version of this package, which a session is told.
const Version = "0.1.0-go"

const (
	// startTimeout is how long a program's start waits for the sessions that its environment names.
	startTimeout = 500 * time.Millisecond
	// openTimeout is how long it waits for recorders that have not started it.
	openTimeout = 100 * time.Millisecond
	// joinTimeout is how long a running program waits when it is asked.
	joinTimeout = 5 * time.Second
	// retryTimeout is for how long a session is tried that is being started, or has no room.
	retryTimeout  = 5 * time.Second
	retryInterval = 10 * time.Millisecond
	// requestTimeout is how long one that asks may take to say what it wants.
	requestTimeout = 50 * time.Millisecond
	// maxJoinSockets is the number of sockets of a folder that are tried.
	maxJoinSockets = 32
)

var errNotBelieved = errors.New("another user has the session's name")

var agentOnce sync.Once

// startAgent starts the agent, when the first event is declared. It joins the sessions that the
// environment names, and those whose join sockets are there. Without any, the process has one more
// goroutine, which sleeps, and no thread for it.
func startAgent() { agentOnce.Do(start) }

func start() {
	if os.Getenv(protocol.DisableVariable) == "1" {
		return
	}
	readStart()
	if !starter.isPrivileged {
		joinNamed()
		joinOpen()
	}
	if os.Getenv(protocol.AttachVariable) != "0" {
		listenForAttach()
	}
}

// joinNamed joins the sessions that the environment names.
func joinNamed() {
	deadline := time.Now().Add(startTimeout)
	if names := os.Getenv(protocol.SessionVariable); names != "" {
		count := 0
		for _, name := range strings.Split(names, ":") {
			if name != "" && count < protocol.MaxRecordings {
				count++
				join(name, protocol.OriginExec, deadline)
			}
		}
		return
	}
	if folder := os.Getenv(protocol.RecordVariable); folder != "" {
		recordInto(folder, deadline)
	}
}

// joinOpen joins the recordings whose sockets are in the folders where recorders make them.
func joinOpen() {
	deadline := time.Now().Add(openTimeout)
	if path := os.Getenv(protocol.SocketVariable); path != "" {
		joinPath(path, deadline)
		return
	}
	user := os.Geteuid()
	hasOwn := joinPath(protocol.JoinFolder(0), deadline)
	if user != 0 {
		hasOwn = joinPath(protocol.JoinFolder(user), deadline)
	}
	if !hasOwn {
		for number := range protocol.MaxOpenSessions {
			join(protocol.OpenSession(user, number), protocol.OriginExec, deadline)
		}
	}
}

// joinPath joins the recordings that have sockets in a folder, or the one that has this socket.
// It returns whether the path leads to either.
func joinPath(path string, deadline time.Time) bool {
	folder, err := os.Open(path)
	if err != nil {
		// A socket can't be opened.
		if errors.Is(err, syscall.ENXIO) {
			join(path, protocol.OriginExec, deadline)
			return true
		}
		return false
	}
	defer folder.Close()
	var stat syscall.Stat_t
	if syscall.Fstat(int(folder.Fd()), &stat) != nil || !believes(stat.Uid) {
		return false
	}
	names, _ := folder.Readdirnames(4 * maxJoinSockets)
	count := 0
	for _, name := range names {
		if strings.HasPrefix(name, ".") || count == maxJoinSockets {
			continue
		}
		count++
		join(filepath.Join(path, name), protocol.OriginExec, deadline)
	}
	return true
}

// join joins the session that listens under a name, and waits for its answer until then; a later
// answer is taken by a goroutine. It returns whether the session could be reached.
func join(name string, origin protocol.Origin, deadline time.Time) bool {
	if isJoined(name) {
		return true
	}
	s, err := connectTo(name)
	if err != nil {
		debug("session %s: not joined: %v", name, err)
		if errors.Is(err, syscall.EAGAIN) {
			go retry(func() bool { return join(name, origin, time.Now().Add(joinTimeout)) })
		}
		return false
	}
	hello := helloOf(origin)
	if s.send(hello.Encode()) != nil {
		s.close()
		return false
	}
	done := make(chan struct{})
	go func() {
		s = finish(s, name, origin, done)
		if s != nil {
			serve(s, name)
		}
	}()
	wait(done, deadline)
	return true
}

// retry tries something until it succeeds, for as long as a session may take to start.
func retry(try func() bool) {
	for end := time.Now().Add(retryTimeout); time.Now().Before(end); {
		time.Sleep(retryInterval)
		if try() {
			return
		}
	}
}

func wait(done <-chan struct{}, deadline time.Time) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// finish receives the answer to Hello and begins the recording. A recorder may be killed before it
// answers, and another one continue: then the process introduces itself once more.
func finish(s *socket, name string, origin protocol.Origin, done chan<- struct{}) *socket {
	defer close(done)
	for end := time.Now().Add(retryTimeout); ; {
		packet, files, err := s.receive(time.Time{})
		if err == nil && len(packet) > 0 {
			if accept(s, name, origin, packet, files) {
				return s
			}
			s.close()
			return nil
		}
		s.close()
		if !time.Now().Before(end) {
			return nil
		}
		time.Sleep(retryInterval)
		if s, err = connectTo(name); err != nil {
			return nil
		}
		hello := helloOf(origin)
		if s.send(hello.Encode()) != nil {
			s.close()
			return nil
		}
	}
}

// accept begins the recording if the answer is a welcome.
func accept(s *socket, name string, origin protocol.Origin, packet []byte, files []int) bool {
	defer closeAll(files)
	message, err := protocol.Decode(packet)
	if _, ok := message.(protocol.Welcome); !ok {
		debug("session %s: expected Welcome, got %T %v (%v)", name, message, message, err)
		return false
	}
	registry.Lock()
	defer registry.Unlock()
	slot, err := beginRecording(name, s, files)
	if err != nil {
		debug("session %s: not joined: %v", name, err)
		_ = s.send(protocol.EncodeFailed(err.Error()))
		return false
	}
	if origin == protocol.OriginRequest {
		registry.recordings[slot].isExported = export(name)
	}
	debug("session %s: joined, slot %d", name, slot)
	return true
}

// serve hears what a session says, until it is gone.
func serve(s *socket, name string) {
	slot := -1
	registry.Lock()
	for i, j := range registry.recordings {
		if j != nil && j.socket == s {
			slot = i
		}
	}
	registry.Unlock()
	if slot < 0 {
		return
	}
	for {
		packet, files, err := s.receive(time.Time{})
		closeAll(files)
		var message protocol.Message
		if err == nil && len(packet) > 0 {
			message, err = protocol.Decode(packet)
		}
		if err != nil || message == nil {
			debug("session %s: its connection has ended", name)
			endRecording(slot)
			s.close()
			return
		}
		switch message := message.(type) {
		case protocol.RulesChanged:
			registry.Lock()
			registry.recordings[slot].refreshRules()
			enableAll()
			registry.Unlock()
		case protocol.Populate:
			registry.recordings[slot].recording.Populate(message.Offset, message.Size)
		}
	}
}

func isJoined(name string) bool {
	registry.Lock()
	defer registry.Unlock()
	for _, j := range registry.recordings {
		if j != nil && j.name == name {
			return true
		}
	}
	return false
}

func helloOf(origin protocol.Origin) protocol.Hello {
	executable, _ := os.Readlink("/proc/self/exe")
	comm, _ := os.ReadFile("/proc/self/comm")
	threads := ring.PrepareThreads()
	if !threads.Sections {
		debug("events reserve their places: %s", threads.Reason)
	}
	return protocol.Hello{
		PID: uint32(os.Getpid()), Origin: origin, HasSections: threads.Sections, HasCounter: ring.HasCounter(),
		HasListener: true, Version: Version, Name: strings.TrimSuffix(string(comm), "\n"), Executable: executable,
		CPU: ring.CPU(), ControlSize: ring.ControlSize,
	}
}

// recordInto joins the session of a folder, and starts it if there is none.
func recordInto(folder string, deadline time.Time) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return
	}
	if joinFolder(folder, deadline) {
		return
	}
	startSession(folder, protocol.FolderSession(os.Geteuid(), folder, 0), deadline)
	if joinFolder(folder, deadline) {
		return
	}
	// It may come too late for the program's start, but not for the rest.
	go retry(func() bool { return joinFolder(folder, time.Now().Add(joinTimeout)) })
}

func joinFolder(folder string, deadline time.Time) bool {
	for number := range protocol.MaxFolderNames {
		if join(protocol.FolderSession(os.Geteuid(), folder, number), protocol.OriginExec, deadline) {
			return true
		}
	}
	return false
}

// startSession starts `tompion record` for a folder, detached, and waits until then that it is
// ready. Should another program do the same at this moment, one of the two finds the name taken and
// ends.
func startSession(folder, name string, deadline time.Time) {
	program, err := exec.LookPath("tompion")
	if err != nil {
		debug("no command tompion to record with: %v", err)
		return
	}
	arguments := append([]string{"record", "--gather-in", folder, "--gather-as", name},
		strings.Fields(os.Getenv(protocol.OptionsVariable))...)
	command := exec.Command(program, arguments...)
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "TOMPION_") && !strings.HasPrefix(variable, "LD_PRELOAD=") {
			command.Env = append(command.Env, variable)
		}
	}
	ready, report, err := os.Pipe()
	if err != nil {
		return
	}
	defer ready.Close()
	// The recorder says that it is ready through its descriptor 3, the first of these.
	command.ExtraFiles = []*os.File{report}
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = command.Start()
	report.Close()
	if err != nil {
		debug("the recorder can't be started: %v", err)
		return
	}
	go func() { _ = command.Wait() }()
	if err := ready.SetReadDeadline(deadline); err == nil {
		_, _ = ready.Read(make([]byte, 1))
	}
}

// listenForAttach makes the process reachable for `tompion record -p`: a goroutine sleeps until a
// session asks.
func listenForAttach() {
	var random [8]byte
	_, _ = rand.Read(random[:])
	name := protocol.AttachSocket(pidNamespace(), os.Getpid(), binary.LittleEndian.Uint64(random[:]))
	listener, err := listenAt(name)
	if err != nil {
		debug("this process can't be attached to: %v", err)
		return
	}
	go func() {
		for {
			s, err := listener.accept()
			if err != nil {
				debug("attach socket: %v", err)
				return
			}
			answerRequest(s)
		}
	}()
}

// answerRequest receives what a session wants, and joins it.
func answerRequest(s *socket) {
	defer s.close()
	user, err := s.peer()
	if err != nil || !believes(user) {
		debug("attach socket: connection of user %d refused", user)
		return
	}
	packet, files, err := s.receive(time.Now().Add(requestTimeout))
	closeAll(files)
	if err != nil {
		return
	}
	if message, err := protocol.Decode(packet); err == nil {
		if request, ok := message.(protocol.Join); ok {
			debug("session %s: asks to be joined", request.Name)
			join(request.Name, protocol.OriginRequest, time.Now().Add(joinTimeout))
		}
	}
}

func hasName(names, name string) bool {
	for _, known := range strings.Split(names, ":") {
		if known == name {
			return true
		}
	}
	return false
}

// unexport takes a session's name out of the environment.
func unexport(name string) {
	var rest []string
	for _, known := range strings.Split(os.Getenv(protocol.SessionVariable), ":") {
		if known != "" && known != name {
			rest = append(rest, known)
		}
	}
	if len(rest) == 0 {
		_ = os.Unsetenv(protocol.SessionVariable)
		return
	}
	_ = os.Setenv(protocol.SessionVariable, strings.Join(rest, ":"))
}

func debug(format string, arguments ...any) {
	if os.Getenv(protocol.LogVariable) == "debug" {
		fmt.Fprintf(os.Stderr, "tompion: "+format+"\n", arguments...)
	}
}
