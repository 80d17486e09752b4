// `endings HOW`: events at all the places where threads and programs begin and end.
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <thread>

#include <tompion/tompion.h>

static void tell(const char *role)
{
    TOMPION_EVENT(endings, role, (str, role, role));
}

struct teller {
    const char *first, *last;
    teller(const char *begins, const char *ends) : first(begins), last(ends) { tell(first); }
    ~teller() { tell(last); }
};

static teller global("global begins", "global ends");
static thread_local teller of_thread("thread_local begins", "thread_local ends");
static pthread_key_t key;
static int key_rounds;

// A key's destructor may be called again, four times at most.
static void key_ends(void *value)
{
    tell("key ends");
    if (++key_rounds < 3)
        pthread_setspecific(key, value);
}

static void in_thread()
{
    tell(of_thread.first ? "thread" : "");
    pthread_setspecific(key, &key);
}

__attribute__((destructor)) static void destructor()
{
    tell("destructor");
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "return";
    pthread_key_create(&key, key_ends);
    std::atexit([] { tell("atexit"); });
    on_exit([](int, void *) { tell("on_exit"); }, nullptr);
    std::at_quick_exit([] { tell("at_quick_exit"); });
    std::thread(in_thread).join();
    tell("main");
    if (std::strcmp(how, "quick_exit") == 0)
        std::quick_exit(0);
    if (std::strcmp(how, "_Exit") == 0)
        std::_Exit(0);
    if (std::strcmp(how, "pthread_exit") == 0)
        pthread_exit(nullptr);
    return 0;
}
