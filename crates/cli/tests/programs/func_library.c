/* A library with a function that everybody sees and one that nobody does. */
static int library_inner(int number)
{
    return number + 1;
}

int library_work(int number)
{
    return library_inner(number) * 2;
}
