/* An event in an inline function: a site in every file that uses it, one description. */
static inline int in_header(int value)
{
    TOMPION_EVENT(place, header, (u8, a, value));
    return value;
}

void second_file(void);
