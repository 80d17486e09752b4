// A state dump as an object: what it uses is destroyed behind it.
#include <tompion/tompion.h>

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

class server {
  public:
    void open(std::string peer)
    {
        std::lock_guard<std::mutex> guard(lock_);
        open_.push_back(std::move(peer));
    }
    bool was_dumped()
    {
        std::lock_guard<std::mutex> guard(lock_);
        return dumped_;
    }

    void dump()
    {
        std::lock_guard<std::mutex> guard(lock_);
        for (const auto &peer : open_)
            TOMPION_EVENT(stateful, connection, (str, peer, peer));
        dumped_ = true;
    }

  private:
    std::mutex lock_;
    std::vector<std::string> open_{"10.0.0.1", "10.0.0.2"};
    bool dumped_ = false;
};

int main()
{
    server served;
    tompion::state_dump connections([&served] { served.dump(); });
    for (int i = 0; i < 10000 && !served.was_dumped(); i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    served.open("10.0.0.3");
    return served.was_dumped() ? 0 : 1;
}
