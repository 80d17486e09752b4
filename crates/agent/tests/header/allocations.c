/* What a program may expect of its allocator, with the preload library as without it. Exits 0. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                          \
    do {                                                          \
        if (!(condition)) {                                       \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            _exit(1);                                             \
        }                                                         \
    } while (0)

/* Not known to the compiler, or it would know the results. */
static size_t huge = SIZE_MAX / 2;

/* Runs before the preload library's own constructor, if anything can. */
static void *first;
__attribute__((constructor(101))) static void early(void)
{
    first = malloc(100);
}

static void *churn(void *argument)
{
    for (int i = 0; i < 2000; i++) {
        char *text = calloc(3, (size_t)i % 50 + 1);
        CHECK(text && text[0] == 0);
        text = realloc(text, 500);
        CHECK(text);
        memset(text, 1, 500);
        free(text);
    }
    return argument;
}

static void limits(void)
{
    void *pointer = first;
    free(realloc(first, 200));
    free(NULL);
    free(malloc(0));
    errno = 0;
    CHECK(!malloc(huge * 2) && errno == ENOMEM);
    errno = 0;
    CHECK(!calloc(huge, 4) && errno == ENOMEM);
    errno = 0;
    CHECK(!reallocarray(NULL, huge, 4) && errno == ENOMEM);
    pointer = malloc(10);
    strcpy(pointer, "kept");
    errno = 0;
    CHECK(!reallocarray(pointer, huge, 4) && errno == ENOMEM);
    errno = 0;
    CHECK(!realloc(pointer, huge * 2) && errno == ENOMEM);
    CHECK(strcmp(pointer, "kept") == 0);
    errno = 77;
    free(pointer);
    CHECK(errno == 77);
    CHECK(posix_memalign(&pointer, 3, 8) == EINVAL && errno == 77);
    CHECK(posix_memalign(&pointer, 4096, 8) == 0 && (uintptr_t)pointer % 4096 == 0);
    free(pointer);
    free(pointer = aligned_alloc(64, 128));
    CHECK((uintptr_t)pointer % 64 == 0);
    free(pointer = memalign(256, 1));
    CHECK((uintptr_t)pointer % 256 == 0);
    free(pointer = valloc(10));
    free(pointer = reallocarray(NULL, 5, 5));
}

int main(void)
{
    pthread_t threads[4];
    limits();
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, NULL) == 0);
    /* Children forked while the others allocate must not hang. */
    for (int i = 0; i < 20; i++) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            churn(NULL);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
