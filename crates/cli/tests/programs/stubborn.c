/* Takes no notice of polite signals. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <tompion/tompion.h>

int main(void)
{
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    printf("%d\n", (int)getpid());
    fflush(stdout);
    fclose(stdout);
    fclose(stderr);
    for (unsigned n = 0;; n++) {
        TOMPION_EVENT(stubborn, step, (u32, number, n));
        usleep(10000);
    }
}
