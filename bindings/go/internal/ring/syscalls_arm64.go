//go:build linux

package ring

// Numbers of system calls that package syscall lacks.
const (
	sysGetCPU         = 168
	sysProcessVMReadv = 270
	sysMembarrier     = 283
)
