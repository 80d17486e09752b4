/* System calls whose arguments have names, for `print --calls` and strace. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void)
{
	struct rlimit limit;
	int one = 1, file, peer;
	void *memory;

	if (openat(AT_FDCWD, "/nonexistent", O_RDONLY | O_CLOEXEC) >= 0)
		return 1;
	file = openat(AT_FDCWD, "made", O_RDWR | O_CREAT | O_TRUNC, 0640);
	fcntl(file, F_SETFD, FD_CLOEXEC);
	close(file);
	close(999);
	close(-1);
	mkdirat(AT_FDCWD, "made.d", 0750);
	unlinkat(AT_FDCWD, "made.d", AT_REMOVEDIR);
	unlinkat(AT_FDCWD, "made", 0);
	peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
	setsockopt(peer, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	prctl(PR_SET_NAME, "calls");
	getrlimit(RLIMIT_NOFILE, &limit);
	memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(memory, 4096, PROT_READ);
	return 7;
}
