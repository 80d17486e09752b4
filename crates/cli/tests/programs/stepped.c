/* Three events, for debuggers: one of fixed size, one with texts, one that is large. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <tompion/tompion.h>

static void first(int number)
{
    TOMPION_EVENT(stepped, first, (i32, number, number));
}

static void second(const char *text)
{
    TOMPION_EVENT(stepped, second, (str, text, text));
}

static void third(const uint8_t *bytes, int count)
{
    TOMPION_EVENT(stepped, third, (u8, first, bytes[0]), (i32, count, count));
}

int main(void)
{
    uint8_t bytes[3000];
    memset(bytes, 7, sizeof bytes);
    for (int round = 0; round < 2; round++) {
        first(round);
        second("some text");
        third(bytes, 3000);
    }
    puts("unharmed");
    return 0;
}
