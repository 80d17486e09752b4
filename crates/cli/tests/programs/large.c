/* Events of 4.5 KiB that have no text or array, between small ones. */
#include <tompion/tompion.h>

#define EIGHT(n)                                                                                        \
    (u64, n##0, i), (u64, n##1, i), (u64, n##2, i), (u64, n##3, i), (u64, n##4, i), (u64, n##5, i),     \
        (u64, n##6, i), (u64, n##7, i)
#define ALL(n) \
    (struct, n, EIGHT(a), EIGHT(b), EIGHT(c), EIGHT(d), EIGHT(e), EIGHT(f), EIGHT(g), EIGHT(h))
#define EVENT(...) TOMPION_EVENT(__VA_ARGS__)

int main(void)
{
    for (uint64_t i = 0; i < 20; i++) {
        TOMPION_EVENT(large, small, (u64, number, i));
        EVENT(large, large, ALL(s1), ALL(s2), ALL(s3), ALL(s4), ALL(s5), ALL(s6), ALL(s7), ALL(s8), ALL(s9));
    }
    return 0;
}
