/*
 * Instrumented functions everywhere at once: func_storm ROUNDS PLUGIN…
 *
 * One thread loads and unloads plugins, others call functions, a signal handler calls some in
 * between.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

static atomic_int done;
static volatile int sink;

static void in_handler(int number)
{
    sink = number;
}

static void handler(int number)
{
    in_handler(number);
}

static void own_work(void)
{
    sink = 1;
}

static void *worker(void *nothing)
{
    while (!atomic_load(&done)) {
        own_work();
        usleep(50);
    }
    return nothing;
}

static int use_plugin(const char *path)
{
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*work)(int);
    int number;
    if (!plugin)
        return -1;
    *(void **)&work = dlsym(plugin, "plugin_work");
    number = work(0);
    dlclose(plugin);
    return number;
}

int main(int count, char **words)
{
    const struct itimerval often = {{0, 500}, {0, 500}};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    pthread_t threads[2];
    sigaction(SIGALRM, &action, NULL);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, worker, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int round = 0; round < atoi(words[1]); round++)
        for (int plugin = 2; plugin < count; plugin++)
            if (use_plugin(words[plugin]) != 3)
                return 1;
    atomic_store(&done, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
