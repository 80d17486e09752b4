/* Marks by Tracy's macros, in C++11, as programs write them. */
#include <tracy/Tracy.hpp>

#include <cstdio>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

static const char *const audio = "audio frame";
static TracyLockable(std::mutex, work_lock);
static int total;

template <class T> static void typed(T value)
{
    ZoneScopedN("typed");
    ZoneValue(value);
}

struct shared {
    void lock() {}
    void unlock() {}
    bool try_lock() { return true; }
    void lock_shared() {}
    void unlock_shared() {}
    bool try_lock_shared() { return false; }
};

static void work(int rounds)
{
    for (int i = 0; i < rounds; ++i) {
        ZoneScoped;
        {
            ZoneScopedNC("inner", 0xff8800);
            ZoneText("text of it", 4);
            ZoneTextF("round %d", i);
            std::lock_guard<LockableBase(std::mutex)> guard(work_lock);
            total += i;
        }
        auto lambda = [i] {
            ZoneNamedN(zone, "lambda", i % 2 == 0);
            ZoneValueV(zone, i);
        };
        lambda();
    }
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? std::stoi(argv[1]) : 3;
    const std::string name = "made at " + std::to_string(rounds);
    std::vector<std::thread> threads;
    TracySharedLockable(shared, table);
    TracyAppInfo("test", 4);
    for (int i = 0; i < 4; ++i)
        threads.emplace_back(work, rounds);
    for (auto &thread : threads)
        thread.join();
    for (int i = 0; i < rounds; ++i) {
        FrameMarkStart(audio);
        TracyPlot("queue", static_cast<int64_t>(i));
        TracyPlot("load", i * 0.5);
        FrameMarkEnd(audio);
        FrameMark;
    }
    FrameMarkNamed(audio);
    table.lock_shared();
    table.unlock_shared();
    LockMark(table);
    {
        ZoneTransientN(zone, name.c_str(), true);
        ZoneNameV(zone, "renamed", 7);
    }
    typed(7);
    typed(7L);
    TracyMessageL("hello");
    TracyAllocN(&total, 40, "pool");
    TracyFreeN(&total, "pool");
    TracyFiberEnter("fiber one");
    TracyFiberLeave;
    return ZoneIsActiveV(tracy::ScopedZone("last", 4, 0, false)) ? 1 : 0;
}
