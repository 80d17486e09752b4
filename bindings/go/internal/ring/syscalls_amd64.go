//go:build linux

package ring

// Numbers of system calls that package syscall lacks.
const (
	sysGetCPU         = 309
	sysProcessVMReadv = 310
	sysMembarrier     = 324
	sysRseq           = 334
)
