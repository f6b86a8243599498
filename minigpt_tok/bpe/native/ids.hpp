// Where ids go: into a growing array, or into a count.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <new>

#include "text.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace minigpt {

// A growing array of ids with room to spare, so that kSlack ids may always be stored at its end.
template <class Id>
class Ids {
   public:
    static constexpr std::size_t kSlack = 16;

    Ids() = default;
    Ids(const Ids&) = delete;
    Ids& operator=(const Ids&) = delete;
    Ids& operator=(Ids&& other) noexcept {
        std::swap(data_, other.data_), std::swap(size_, other.size_), std::swap(room_, other.room_);
        return *this;
    }
    Ids(Ids&& other) noexcept : data_(other.data_), size_(other.size_), room_(other.room_) { other.data_ = nullptr, other.size_ = other.room_ = 0; }
    ~Ids() { std::free(data_); }

    void reserve_more(std::size_t ids) {
        if (size_ + ids + kSlack <= room_) return;
        const std::size_t room = std::max(size_ + ids + kSlack, room_ * 2);
        if (!resize(room)) throw std::bad_alloc();
    }
    // For a text of so many bytes to come. What is not used costs address space only, and none after `release`.
    void expect_text(std::size_t bytes) {
        if (bytes >= kHugePage && room_ - size_ < bytes / 2) resize(size_ + bytes / 2);
    }
    Id* end() { return data_ + size_; }
    void advance(std::size_t ids) { size_ += ids; }
    template <class Other>
    void append(const Other* ids, std::size_t count) {
        if (!count) return;
        reserve_more(count);
        std::copy_n(ids, count, end());
        size_ += count;
    }
    void clear() { size_ = 0; }
    const Id* data() const { return data_; }
    std::size_t size() const { return size_; }
    std::size_t room() const { return room_; }
    // The memory, cut to size; the caller frees it.
    Id* release() {
        void* data = std::realloc(data_, std::max<std::size_t>(size_, 1) * sizeof(Id));
        Id* ids = static_cast<Id*>(data ? data : data_);
        data_ = nullptr, size_ = room_ = 0;
        return ids;
    }

   private:
    static constexpr std::size_t kHugePage = std::size_t{2} << 20;
    Id* data_ = nullptr;
    std::size_t size_ = 0, room_ = 0;

    bool resize(std::size_t room) {
        void* data = std::realloc(data_, room * sizeof(Id));
        if (!data) return false;
        data_ = static_cast<Id*>(data), room_ = room;
#if defined(__linux__)
        if (room * sizeof(Id) >= 2 * kHugePage) {  // before the first touch: one page fault instead of 512
            const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
            const auto first = (reinterpret_cast<std::uintptr_t>(data) + page - 1) & ~(page - 1);
            madvise(reinterpret_cast<void*>(first), (room * sizeof(Id) - page) & ~(page - 1), MADV_HUGEPAGE);
        }
#endif
        return true;
    }
};

// Counts ids instead of keeping them.
class Tally {
   public:
    void reserve_more(std::size_t) {}
    void expect_text(std::size_t) {}
    void advance(std::size_t ids) { size_ += ids; }
    template <class Id>
    void append(const Id*, std::size_t count) {
        size_ += count;
    }
    std::size_t size() const { return size_; }

   private:
    std::size_t size_ = 0;
};

}  // namespace minigpt
