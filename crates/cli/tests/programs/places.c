/* Events wherever a program runs: before main, after it, in a second source and in a library. */
#include <stdlib.h>

#include <tompion/tompion.h>

void second_source(void);
void library_function(void);

__attribute__((constructor(200))) static void early(void)
{
    TOMPION_EVENT(places, constructor_200);
}

__attribute__((constructor)) static void constructor(void)
{
    TOMPION_EVENT(places, constructor);
}

__attribute__((destructor)) static void destructor(void)
{
    TOMPION_EVENT(places, destructor);
}

static void at_exit(void)
{
    TOMPION_EVENT(places, at_exit);
}

int main(void)
{
    atexit(at_exit);
    TOMPION_EVENT(places, main);
    second_source();
    library_function();
    TOMPION_EVENT(places, shared, (i32, from, 1));
    return 0;
}
