//go:build linux && (amd64 || arm64)

package tompion

import (
	"bytes"
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tompion/tompion/bindings/go/internal/protocol"
)

// socket is a packet socket of the Unix domain. Waiting for it takes no thread: it is watched by
// the run-time's poller. Package net is not used, since that may bring cgo into the program.
type socket struct {
	file *os.File
	raw  syscall.RawConn
}

func newSocket() (int, error) {
	const kind = syscall.SOCK_SEQPACKET | syscall.SOCK_CLOEXEC | syscall.SOCK_NONBLOCK
	return syscall.Socket(syscall.AF_UNIX, kind, 0)
}

func socketOf(fd int) (*socket, error) {
	file := os.NewFile(uintptr(fd), "tompion")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &socket{file, raw}, nil
}

// addressOf returns the address of a name: a path if it begins with a slash, else an abstract name.
func addressOf(name string) *syscall.SockaddrUnix {
	if !strings.HasPrefix(name, "/") {
		name = "@" + name
	}
	return &syscall.SockaddrUnix{Name: name}
}

// connectTo connects to a session that this process believes, without waiting.
func connectTo(name string) (*socket, error) {
	fd, err := newSocket()
	if err != nil {
		return nil, err
	}
	if err := syscall.Connect(fd, addressOf(name)); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	s, err := socketOf(fd)
	if err != nil {
		return nil, err
	}
	if user, err := s.peer(); err != nil || !believes(user) {
		s.close()
		return nil, errNotBelieved
	}
	return s, nil
}

func listenAt(name string) (*socket, error) {
	fd, err := newSocket()
	if err != nil {
		return nil, err
	}
	if err = syscall.Bind(fd, addressOf(name)); err == nil {
		err = syscall.Listen(fd, 1024)
	}
	if err != nil {
		syscall.Close(fd)
		return nil, err
	}
	return socketOf(fd)
}

// accept waits for a connection.
func (s *socket) accept() (*socket, error) {
	var fd int
	var result error
	err := s.raw.Read(func(listener uintptr) bool {
		fd, _, result = syscall.Accept4(int(listener), syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK)
		return result != syscall.EAGAIN && result != syscall.ECONNABORTED && result != syscall.EINTR
	})
	if err != nil {
		return nil, err
	}
	if result != nil {
		return nil, result
	}
	return socketOf(fd)
}

func (s *socket) close() { s.file.Close() }

// peer returns the user at the other end, as the kernel tells.
func (s *socket) peer() (uint32, error) {
	var credentials *syscall.Ucred
	var result error
	err := s.raw.Control(func(fd uintptr) {
		credentials, result = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err == nil {
		err = result
	}
	if err != nil {
		return 0, err
	}
	return credentials.Uid, nil
}

// send sends a packet; the queue of a new connection has room for it.
func (s *socket) send(packet []byte) error {
	var result error
	err := s.raw.Control(func(fd uintptr) { result = syscall.Sendto(int(fd), packet, syscall.MSG_NOSIGNAL, nil) })
	if err != nil {
		return err
	}
	return result
}

// receive waits for a packet, with descriptors that come with it. A packet of no bytes is the end.
// A deadline of zero is none.
func (s *socket) receive(deadline time.Time) (packet []byte, files []int, err error) {
	if err := s.file.SetReadDeadline(deadline); err != nil {
		return nil, nil, err
	}
	buffer := make([]byte, protocol.MaxMessage)
	control := make([]byte, syscall.CmsgSpace(4*8))
	var size, controlSize int
	var result error
	err = s.raw.Read(func(fd uintptr) bool {
		const flags = syscall.MSG_CMSG_CLOEXEC | syscall.MSG_DONTWAIT
		size, controlSize, _, _, result = syscall.Recvmsg(int(fd), buffer, control, flags)
		return result != syscall.EAGAIN && result != syscall.EINTR
	})
	if err == nil {
		err = result
	}
	if err != nil {
		return nil, nil, err
	}
	return buffer[:size], filesIn(control[:controlSize]), nil
}

// filesIn returns the descriptors of a control message.
func filesIn(control []byte) []int {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	var files []int
	for i := range messages {
		if received, err := syscall.ParseUnixRights(&messages[i]); err == nil {
			files = append(files, received...)
		}
	}
	return files
}

func closeAll(files []int) {
	for _, file := range files {
		syscall.Close(file)
	}
}

// starter is what the kernel said at the program's start.
var starter struct {
	// isPrivileged: the program has more rights than its starter, and follows nothing that it says.
	isPrivileged       bool
	user, effectiveUID uint64
}

// readStart reads the auxiliary vector (`getauxval(3)`). Without it nothing but root is believed.
func readStart() {
	const auxUID, auxEUID, auxSecure = 11, 12, 23
	starter.isPrivileged = true
	vector, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		return
	}
	for ; len(vector) >= 16; vector = vector[16:] {
		value := binary.LittleEndian.Uint64(vector[8:])
		switch binary.LittleEndian.Uint64(vector) {
		case auxUID:
			starter.user = value
		case auxEUID:
			starter.effectiveUID = value
		case auxSecure:
			starter.isPrivileged = value != 0
		}
	}
}

// believes says whether this process takes part in a session of a user: root's, and those of the
// user that it has been since its start.
func believes(user uint32) bool {
	const overflow = 65534
	if user == 0 {
		return true
	}
	if starter.isPrivileged || starter.user != uint64(user) || starter.effectiveUID != uint64(user) ||
		os.Geteuid() != int(user) {
		return false
	}
	if user != overflow {
		return true
	}
	// In a user namespace, this number stands for all users that have none.
	ids, _ := os.ReadFile("/proc/self/uid_map")
	return bytes.Equal(bytes.Join(bytes.Fields(ids), []byte(" ")), []byte("0 0 4294967295"))
}

// pidNamespace returns the number of the process's pid namespace; 0 if it is unknown.
func pidNamespace() uint64 {
	link, _ := os.Readlink("/proc/self/ns/pid")
	number := strings.TrimSuffix(strings.TrimPrefix(link, "pid:["), "]")
	namespace, _ := strconv.ParseUint(number, 10, 64)
	return namespace
}
