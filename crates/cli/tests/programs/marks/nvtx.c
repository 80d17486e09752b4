/*
 * Marks by NVIDIA's API (NVTX 3), without its headers: what those do to find a library is done
 * here, by own declarations of the interface.
 *
 *     nvtx [NAMES]      pushes ranges of so many different names
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <wchar.h>

typedef void (*function)(void);
struct table {
    size_t struct_size;
    int (*of_module)(int, function ***, unsigned *);
};
struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    union {
        uint64_t u64;
        double f64;
        int32_t i32;
    } payload;
    int32_t message_type;
    const void *message;
};

/* The pointers through which calls go: by the numbers of modules 1 and 5. */
static function core[16], core2[16];
static function *core_table[17], *core2_table[17];

static int of_module(int module, function ***table, unsigned *size)
{
    *table = module == 1 ? core_table : module == 5 ? core2_table : NULL;
    *size = 16;
    return *table != NULL;
}
static const void *export_table(uint32_t id)
{
    static const struct table table = {sizeof table, of_module};
    return id == 1 ? &table : NULL;
}

static int push(const char *name)
{
    return ((int (*)(const char *))core[9])(name);
}
static int pop(void)
{
    return ((int (*)(void))core[11])();
}
static void *create_domain(const char *name)
{
    return ((void *(*)(const char *))core2[12])(name);
}
static const void *register_string(void *domain, const char *text)
{
    return ((const void *(*)(void *, const char *))core2[10])(domain, text);
}

static void *work(void *domain)
{
    const struct attributes attributes = {
        3, sizeof attributes, 4, 1, 0xff00ff00, 5, 0, {.i32 = -3}, 3, register_string(domain, "kernel launch")};
    int i;
    for (i = 0; i < 100; ++i) {
        if (((int (*)(void *, const struct attributes *))core2[4])(domain, &attributes) != 0)
            abort();
        if (push("outer") != 0 || push("inner") != 1 || pop() != 1 || pop() != 0)
            abort();
        if (((int (*)(void *))core2[5])(domain) != 0)
            abort();
    }
    return NULL;
}

static void each_once(void)
{
    const struct attributes marked = {3, sizeof marked, 0, 0, 0, 3, 0, {.f64 = 2.5}, 1, "here"};
    const struct attributes colored = {3, sizeof colored, 0, 1, 0xff0000ff, 0, 0, {0}, 1, "transfer"};
    const struct attributes silent = {3, sizeof silent, 7, 0, 0, 0, 0, {0}, 0, NULL};
    uint64_t first, second;
    ((void (*)(uint32_t, const char *))core[12])(4, "kernels");
    ((void (*)(uint32_t, const char *))core[14])(4711, "loader");
    ((void (*)(const struct attributes *))core[1])(&marked);
    ((void (*)(const wchar_t *))core[3])(L"wide \x20ac");
    ((void (*)(const struct attributes *))core[1])(&silent);
    first = ((uint64_t(*)(const char *))core[5])("request");
    second = ((uint64_t(*)(const struct attributes *))core[4])(&colored);
    ((void (*)(uint64_t))core[7])(first);
    ((void (*)(uint64_t))core[7])(second);
    ((void (*)(uint64_t))core[7])(12345);
    if (pop() >= 0)
        abort();
}

int main(int argc, char **argv)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    int (*init)(const void *(*)(uint32_t)) = NULL;
    pthread_t threads[4];
    void *domain;
    char name[64];
    long i;
    for (i = 0; i < 16; ++i)
        core_table[i] = &core[i], core2_table[i] = &core2[i];
    if (library)
        *(void **)&init = dlsym(library, "InitializeInjectionNvtx2");
    if (!init || !init(export_table))
        return puts("no library"), 0;
    if (argc > 1) {
        for (i = 0; i < atol(argv[1]); ++i) {
            snprintf(name, sizeof name, "batch %ld", i);
            push(name);
            pop();
        }
        return 0;
    }
    each_once();
    domain = create_domain("My::Lib");
    for (i = 0; i < 4; ++i)
        pthread_create(&threads[i], NULL, work, domain);
    for (i = 0; i < 4; ++i)
        pthread_join(threads[i], NULL);
    return 0;
}
