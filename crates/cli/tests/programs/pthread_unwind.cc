// Threads that end from within C++ code run the destructors of what they were doing, in order.
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <pthread.h>
#include <semaphore.h>
#include <stdexcept>
#include <thread>

namespace {

struct Said {
    const char *what;
    ~Said() { std::printf("%s\n", what); }
};

std::mutex mutex;
std::condition_variable never;
sem_t ready;

void *cancelled_in_a_wait(void *)
{
    Said outer{"outer of the cancelled"};
    std::unique_lock<std::mutex> lock(mutex);
    Said inner{"inner of the cancelled"};
    sem_post(&ready);
    never.wait(lock, [] { return false; });
    return nullptr;
}

void *exits(void *)
{
    Said outer{"outer of the one that exits"};
    [] {
        Said inner{"inner of the one that exits"};
        pthread_exit(nullptr);
    }();
    return nullptr;
}

} // namespace

int main()
{
    pthread_t thread;
    void *result;
    sem_init(&ready, 0, 0);
    pthread_create(&thread, nullptr, cancelled_in_a_wait, nullptr);
    sem_wait(&ready);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    std::printf("cancelled: %d\n", result == PTHREAD_CANCELED);
    // The lock was given back.
    std::lock_guard<std::mutex>{mutex};

    pthread_create(&thread, nullptr, exits, nullptr);
    pthread_join(thread, nullptr);

    std::thread catches([] {
        try {
            Said said{"thrown through"};
            throw std::runtime_error("thrown");
        } catch (const std::exception &error) {
            std::printf("%s\n", error.what());
        }
    });
    catches.join();
    return 0;
}
