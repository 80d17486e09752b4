/*
 * shared_vm_allocates: a vfork child allocates on its parent's memory. Not linked with the library:
 * what it does is seen through a preloaded one.
 */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	void *volatile place = malloc(100);
	free(place);
	pid_t child = vfork();
	if (child == 0) {
		for (int i = 0; i < 50; i++) {
			place = malloc(200);
			free(place);
		}
		_exit(0);
	}
	int status;
	return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
