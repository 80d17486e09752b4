/* Several plugins of one size: NAME is what they differ by. */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

static int JOIN(NAME, _inner)(int number)
{
    return number + 3;
}

int plugin_work(int number)
{
    return JOIN(NAME, _inner)(number);
}
