// Ids of chunks of text, which several threads finish in any order, one after another in one array.
#pragma once

#include <mutex>
#include <shared_mutex>
#include <vector>

#include "ids.hpp"

namespace minigpt {

// A chunk is encoded into a small array of its thread's, which stays in its cache, and copied to its place once all before it
// are finished and its place is known. No thread waits for another: what has no place yet is kept, and looked at again after
// the next chunk. So the large array is touched once, and a thread that the system holds up delays nobody.
template <class Id>
class InOrder {
   public:
    // out: empty, with room for most of what comes.
    InOrder(Ids<Id>& out, std::size_t chunks) : out_(out), counts_(chunks, kUnfinished), starts_(chunks + 1, 0) {}

    // One thread's chunks. `spare`: arrays that it has kept from earlier work, so that it need not touch new memory.
    class Part {
       public:
        Part(InOrder& order, std::vector<Ids<Id>>& spare) : order_(order), spare_(spare) {}

        // Where the ids of the next chunk go; empty.
        Ids<Id>& next() {
            if (spare_.empty()) spare_.emplace_back();
            spare_.back().clear();
            return spare_.back();
        }
        // What lies in `next` are the ids of this chunk.
        void finish(std::size_t chunk) {
            const std::size_t placed = order_.finish(chunk, spare_.back().size());
            waiting_.push_back({chunk, std::move(spare_.back())});
            spare_.pop_back();
            place(placed);
        }
        // Once all chunks are finished.
        void place_rest() { place(order_.placed_); }

       private:
        struct Waiting {
            std::size_t chunk;
            Ids<Id> ids;
        };
        InOrder& order_;
        std::vector<Ids<Id>>& spare_;
        std::vector<Waiting> waiting_;  // in the order of their chunks

        void place(std::size_t placed) {
            std::size_t done = 0;
            for (; done < waiting_.size() && waiting_[done].chunk < placed; ++done) {
                order_.copy(waiting_[done].chunk, waiting_[done].ids);
                spare_.push_back(std::move(waiting_[done].ids));
            }
            waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(done));
        }
    };

    // Once all is in its place.
    void close() { out_.advance(starts_[placed_]); }

   private:
    static constexpr std::size_t kUnfinished = ~std::size_t{0};
    Ids<Id>& out_;
    std::vector<std::size_t> counts_, starts_;  // in ids
    std::size_t placed_ = 0;                    // the chunks before this one have a place
    std::mutex finishing_;
    std::shared_mutex moving_;  // held alone where the large array has to grow

    std::size_t finish(std::size_t chunk, std::size_t count) {
        const std::lock_guard lock(finishing_);
        counts_[chunk] = count;
        for (; placed_ < counts_.size() && counts_[placed_] != kUnfinished; ++placed_)
            starts_[placed_ + 1] = starts_[placed_] + counts_[placed_];
        return placed_;
    }

    void copy(std::size_t chunk, const Ids<Id>& ids) {
        const std::size_t start = starts_[chunk], end = start + ids.size();
        {
            const std::shared_lock copying(moving_);
            if (end <= out_.room()) {
                std::copy_n(ids.data(), ids.size(), out_.end() + start);
                return;
            }
        }
        const std::lock_guard alone(moving_);
        out_.reserve_more(end);
        std::copy_n(ids.data(), ids.size(), out_.end() + start);
    }
};

}  // namespace minigpt
