/* A program in C that was linked with a library in Rust; both have events. */
#include <stdint.h>
#include <tompion/tompion.h>

void plugin_work(uint32_t number);

int main(void)
{
    TOMPION_EVENT(c, before, (u32, number, 1));
    plugin_work(2);
    TOMPION_EVENT(c, after, (u32, number, 3));
    return 0;
}
