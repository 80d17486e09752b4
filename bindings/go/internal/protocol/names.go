package protocol

import (
	"fmt"
	"strconv"
)

// Environment variables, see crates/protocol/src/names.rs.
const (
	SessionVariable = "TOMPION_SESSION"
	RecordVariable  = "TOMPION_RECORD"
	OptionsVariable = "TOMPION_RECORD_OPTIONS"
	DisableVariable = "TOMPION_DISABLE"
	AttachVariable  = "TOMPION_ATTACH"
	SocketVariable  = "TOMPION_SOCKET"
	LogVariable     = "TOMPION_LOG"
)

// MaxOpenSessions is the number of sessions of a user that are open to all the user's programs.
const MaxOpenSessions = 8

// MaxFolderNames is the number of names under which a folder's session is looked for.
const MaxFolderNames = 64

// AttachSocket returns a name under which a process can be asked to take part.
func AttachSocket(namespace uint64, pid int, random uint64) string {
	return fmt.Sprintf("tompion-bell-%d-%d-%016x", namespace, pid, random)
}

// JoinFolder returns the folder with the join sockets of a user's recorders.
func JoinFolder(user int) string {
	if user == 0 {
		return "/run/tompion/join"
	}
	return "/run/user/" + strconv.Itoa(user) + "/tompion/join"
}

// OpenSession returns a name under which a session listens that is open to a user's programs.
func OpenSession(user, number int) string { return fmt.Sprintf("tompion-open-%d-%d", user, number) }

// FolderSession returns a name under which the session of a folder listens. The first number is 0.
func FolderSession(user int, folder string, number int) string {
	hash := uint64(0xcbf29ce484222325)
	for i := range len(folder) {
		hash = (hash ^ uint64(folder[i])) * 0x100000001b3
	}
	name := fmt.Sprintf("tompion-folder-%d-%016x", user, hash)
	if number != 0 {
		name += "-" + strconv.Itoa(number)
	}
	return name
}
