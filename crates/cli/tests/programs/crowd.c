/*
 * Loads libraries, all of them at once, and lets each pass its sites.
 *
 *   crowd LIBRARY...
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
	void *libraries[64] = { NULL };
	if (count > 64)
		return 2;
	for (int number = 1; number < count; number++) {
		libraries[number] = dlopen(arguments[number], RTLD_NOW | RTLD_LOCAL);
		if (!libraries[number]) {
			fprintf(stderr, "crowd: %s\n", dlerror());
			return 1;
		}
	}
	for (int number = 1; number < count; number++) {
		void (*pass)(int) = (void (*)(int))dlsym(libraries[number], "pass");
		if (!pass)
			return 1;
		pass(number - 1);
	}
	for (int number = 1; number < count; number++)
		dlclose(libraries[number]);
	return 0;
}
