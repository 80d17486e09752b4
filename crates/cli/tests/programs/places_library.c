#include <tompion/tompion.h>

void library_function(void);

__attribute__((constructor)) static void constructor(void)
{
    TOMPION_EVENT(places, library_constructor);
}

__attribute__((destructor)) static void destructor(void)
{
    TOMPION_EVENT(places, library_destructor);
}

void library_function(void)
{
    TOMPION_EVENT(places, library_function);
    TOMPION_EVENT(places, shared, (i32, from, 3));
}
