/* A library with an exported function and a hidden one. */
static int library_inner(int number)
{
    return number + 1;
}

int library_work(int number)
{
    return library_inner(number) * 2;
}
