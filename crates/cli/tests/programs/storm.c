/*
 * `storm COUNT MOST`: forks so many children, that many at once, each of which has one event.
 */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tompion/tompion.h>

int main(int argc, char **argv)
{
    int count = argc > 2 ? atoi(argv[1]) : 0, most = argc > 2 ? atoi(argv[2]) : 1, living = 0;

    TOMPION_EVENT(storm, begins);
    for (int number = 0; number < count; number++) {
        if (living == most && wait(NULL) > 0)
            living--;
        pid_t child = fork();
        if (child < 0)
            return 2;
        if (child == 0) {
            TOMPION_EVENT(storm, child, (i32, number, number));
            _exit(0);
        }
        living++;
    }
    while (wait(NULL) > 0)
        ;
    return 0;
}
