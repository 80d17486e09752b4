// Threads that allocate in C++'s ways.
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

static const std::string before_main(100, 'x');

int main()
{
    std::vector<std::thread> threads;
    std::vector<size_t> sums(4);
    for (size_t thread = 0; thread < sums.size(); thread++)
        threads.emplace_back([&sums, thread] {
            std::map<std::string, std::unique_ptr<size_t>> numbers;
            for (size_t i = 0; i < 5000; i++)
                numbers[before_main + std::to_string(i)] = std::make_unique<size_t>(i);
            for (auto &number : numbers)
                sums[thread] += *number.second;
        });
    for (auto &thread : threads)
        thread.join();
    for (auto sum : sums)
        std::cout << sum << "\n";
}
