// Work shared by several threads, any of which may fail, and all of which may be stopped.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "stop.hpp"

namespace minigpt {

// Runs work(0, …) on this thread and work(1, …) up to work(threads - 1, …) on others. `go_on` is asked on this thread alone,
// also while it waits for the others; once it says no, all are told to stop. What one of them throws stops all, and is thrown
// here. Where the system gives no more threads, this one does their part as well.
template <class Work>
void share(unsigned threads, const GoOn& go_on, const Work& work) {
    std::atomic<bool> stop{false};
    std::mutex mutex;
    std::condition_variable one_done;
    std::size_t done = 0;
    std::exception_ptr thrown;
    const GoOn ask_here = [&] {
        if (!stop.load(std::memory_order_relaxed) && !go_on()) stop = true;
        return !stop.load(std::memory_order_relaxed);
    };
    const GoOn ask_there = [&] { return !stop.load(std::memory_order_relaxed); };
    const auto guarded = [&](unsigned t, const GoOn& ask) {
        try {
            work(t, ask);
        } catch (...) {
            const std::lock_guard lock(mutex);
            if (!thrown) thrown = std::current_exception();
            stop = true;
        }
    };
    std::vector<std::jthread> others;
    others.reserve(threads);
    try {
        for (unsigned t = 1; t < threads; ++t)
            others.emplace_back([&, t] {
                guarded(t, ask_there);
                const std::lock_guard lock(mutex);
                ++done;
                one_done.notify_one();
            });
    } catch (const std::system_error&) {
    }
    guarded(0, ask_here);
    for (unsigned t = static_cast<unsigned>(others.size()) + 1; t < threads; ++t) guarded(t, ask_here);
    for (std::unique_lock lock(mutex); done < others.size();) {
        one_done.wait_for(lock, std::chrono::milliseconds(5));
        lock.unlock();  // while Python is asked
        ask_here();
        lock.lock();
    }
    others.clear();
    if (thrown) std::rethrow_exception(thrown);
}

}  // namespace minigpt
