/*
 * Calls functions in all kinds of places: func_calls ROUNDS PLUGIN…
 *
 * Its own, a linked library's, and in each round those of each plugin, which is loaded for that;
 * then in a child.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int library_work(int number);

static int own_inner(int number)
{
    return number * 3;
}

int own_work(int number)
{
    return own_inner(number) + 1;
}

static int compare(const void *left, const void *right)
{
    return *(const int *)left - *(const int *)right;
}

static int use_plugin(const char *path)
{
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*work)(int);
    int number = 0;
    if (!plugin) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    *(void **)&work = dlsym(plugin, "plugin_work");
    number = work(number);
    dlclose(plugin);
    return number;
}

static int in_child(void)
{
    return library_work(1) == 4 ? 0 : 2;
}

int main(int count, char **words)
{
    int numbers[] = {2, 1}, status;
    pid_t child;
    /* Where the program is not position-independent, this is the function's address for the
     * library, too. */
    int (*volatile work)(int) = library_work;
    qsort(numbers, 2, sizeof *numbers, compare);
    printf("%d\n", own_work(1) + work(1) + numbers[0]);
    for (int round = 0; round < atoi(words[1]); round++)
        for (int plugin = 2; plugin < count; plugin++)
            if (use_plugin(words[plugin]) != 3)
                return 1;
    child = fork();
    if (child == 0)
        _exit(in_child());
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}
