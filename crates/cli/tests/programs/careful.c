/* Events that a filter must be careful with: lengths that are mistakes, and those of a child. */
#include <tompion/tompion.h>

#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	static const char letters[3] = "abc";
	const void *none = NULL;

	for (int i = 0; i < 4; i++) {
		size_t count = i == 2 ? (size_t)-1 : sizeof letters;
		TOMPION_EVENT(filtered, list, (i32, i, i), (sequence, list, u8, letters, count),
			      (sequence, none, u16, none, count));
	}
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < 100; i++) {
			TOMPION_EVENT(filtered, child, (i32, own, getpid()), (i32, of, getppid()));
			usleep(5000);
		}
		_exit(0);
	}
	TOMPION_EVENT(filtered, parent, (i32, own, getpid()), (i32, of, child));
	waitpid(child, NULL, 0);
	return 0;
}
