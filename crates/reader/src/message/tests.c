/* Formats each line "TYPE FORMAT\tVALUE[\tWIDTH[\tPRECISION]]" of standard input by printf. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRINT(value)                                    \
    (count == 3   ? printf(format, width, precision, value) \
     : count == 2 ? printf(format, width, value)            \
                  : printf(format, value))

int main(void)
{
    static char line[65536];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        char *format = line + 2, *parts[3] = {"", "", ""};
        int count = 0;
        for (char *tab; count < 3 && (tab = strrchr(format, '\t')); count++) {
            *tab = 0;
            parts[count] = tab + 1;
        }
        /* The last one comes first. */
        const char *value = count ? parts[count - 1] : "";
        int width = count > 1 ? atoi(parts[count - 2]) : 0, precision = count > 2 ? atoi(parts[0]) : 0;
        switch (line[0]) {
        case 'i': PRINT((int)strtoll(value, NULL, 10)); break;
        case 'u': PRINT((unsigned)strtoull(value, NULL, 10)); break;
        case 'l': PRINT(strtoll(value, NULL, 10)); break;
        case 'U': PRINT(strtoull(value, NULL, 10)); break;
        case 'p': PRINT((void *)strtoull(value, NULL, 10)); break;
        case 'd': PRINT(strtod(value, NULL)); break;
        case 's': PRINT(value); break;
        }
        putchar('\n');
    }
    return 0;
}
