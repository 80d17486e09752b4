/* Calls a function from time to time, until it is killed. */
#include <unistd.h>

static void tick(void)
{
    usleep(1000);
}

int main(void)
{
    for (;;)
        tick();
}
