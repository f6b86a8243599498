// Learning merges in flat arrays.
//
// All distinct pieces lie end to end in one array, a slot a unit, with a wall between pieces. A token of several units has its
// id in its first and in its last slot, so both neighbours are found from a place without any links: to the right after the
// token's length, to the left from the id just before. For every pair there is the list of places where it came to be, and
// its count; both only shrink once the pair exists, because all its occurrences appear in the one merge that makes the younger
// of its tokens. Places that have gone are passed over when the pair's turn comes. Cost: O(1) for each replacement, 8 bytes
// for each unit of the distinct pieces and 4 for each place; counts are 64-bit.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <unordered_set>

#include "stop.hpp"
#include "text.hpp"
#include "vocab.hpp"

namespace minigpt {

enum class Tie { lowest_ids, greatest_bytes, first_seen };

struct LearnedMerge {
    u32 left, right;
    std::int64_t count, tokens_after;
};

class Trainer {
   public:
    // base[id]: the raw bytes of the base tokens. All that takes long asks `go_on`, and throws Stopped at a no.
    Trainer(std::vector<std::string> base, Tie tie, std::int64_t min_frequency, std::size_t max_length, const GoOn& go_on)
        : tie_(tie), min_frequency_(min_frequency), max_length_(max_length), go_on_(go_on), texts_(std::move(base)), lengths_(texts_.size(), 1) {
        slots_.push_back(kNone);
        word_of_.push_back(0);
    }

    // For a tokenizer that is trained further: its tokens are the base, each of so many units (a slot each all the same), and
    // some bytes are not made by any merge.
    void continue_from(std::vector<std::size_t> sizes, std::unordered_set<std::string> passed_over) {
        sizes_ = std::move(sizes);
        passed_over_ = std::move(passed_over);
    }

    void reserve(std::size_t units, std::size_t pieces) {
        slots_.reserve(units + pieces + 1);
        word_of_.reserve(units + pieces + 1);
        weights_.reserve(pieces);
    }

    void begin_piece(std::int64_t count) { weights_.push_back(count); }
    void add_unit(u32 id) {
        slots_.push_back(id);
        word_of_.push_back(static_cast<u32>(weights_.size() - 1));
        tokens_ += weights_.back();
        step();
    }
    void end_piece() {
        slots_.push_back(kNone);
        word_of_.push_back(static_cast<u32>(weights_.size() - 1));
        if (slots_.size() > kMostSlots)
            throw std::overflow_error("the distinct pieces of the training text are longer than 4 GiB together, the most that can be trained on");
    }

    std::int64_t tokens() const { return tokens_; }

    // Up to `most` merges; `progress` is told now and then how many there are.
    void learn(std::size_t most, std::vector<LearnedMerge>& merges, const std::function<void(std::size_t)>& progress) {
        find_pairs();
        while (merges.size() < most) {
            ask(&go_on_);
            if (heap_.empty()) break;
            const Candidate top = heap_.front();
            const std::int64_t count = pairs_[top.pair].count;
            const u64 order = count >= min_frequency_ && tie_ == Tie::first_seen ? first_place(top.pair) : top.order;
            if (count != top.count || order != top.order) {  // out of date: back with what is true now
                std::pop_heap(heap_.begin(), heap_.end(), Worse{this});
                if (count < min_frequency_) {
                    heap_.pop_back();
                } else {
                    heap_.back() = {count, order, top.pair};
                    std::push_heap(heap_.begin(), heap_.end(), Worse{this});
                }
                continue;
            }
            std::pop_heap(heap_.begin(), heap_.end(), Worse{this});
            heap_.pop_back();
            const u32 left = static_cast<u32>(pairs_[top.pair].key >> 32), right = static_cast<u32>(pairs_[top.pair].key);
            if (refused(left, right)) continue;
            lengths_.push_back(lengths_[left] + lengths_[right]);
            if (!sizes_.empty()) sizes_.push_back(sizes_[left] + sizes_[right]);
            if (tie_ == Tie::greatest_bytes || !passed_over_.empty()) texts_.push_back(texts_[left] + texts_[right]);
            merge(top.pair, left, right, static_cast<u32>(lengths_.size() - 1));
            merges.push_back({left, right, count, tokens_});
            if (merges.size() % 256 == 0) progress(merges.size());
        }
    }

    // The count of the best pair that is left, 0 if none is; pairs that are refused do not count.
    std::int64_t best_left() {
        std::unordered_map<u64, std::int64_t> left;
        for (std::size_t place = 1; place + 1 < slots_.size();) {
            step();
            if (slots_[place] == kNone) {
                ++place;
                continue;
            }
            const std::size_t next = place + lengths_[slots_[place]];
            if (slots_[next] != kNone && !refused(slots_[place], slots_[next]))
                left[u64{slots_[place]} << 32 | slots_[next]] += weights_[word_of_[place]];
            place = next;
        }
        std::int64_t best = 0;
        for (const auto& [key, count] : left) best = std::max(best, count);
        return best;
    }

   private:
    struct Pair {
        u64 key;  // left id on top
        std::int64_t count;
        u64 places;  // where its list begins in places_
        u32 number;  // of places
    };
    struct Candidate {
        std::int64_t count;
        u64 order;  // lowest_ids and greatest_bytes: the pair's key; first_seen: its first place
        u32 pair;
    };
    // For a heap with the best on top: by count, then by the rule for ties.
    struct Worse {
        const Trainer* trainer;
        bool operator()(const Candidate& a, const Candidate& b) const {
            if (a.count != b.count) return a.count < b.count;
            if (trainer->tie_ != Tie::greatest_bytes) return a.order > b.order;
            const auto& texts = trainer->texts_;
            const int left = texts[a.order >> 32].compare(texts[b.order >> 32]);
            return left ? left < 0 : texts[static_cast<u32>(a.order)] < texts[static_cast<u32>(b.order)];
        }
    };

    Tie tie_;
    std::int64_t min_frequency_, tokens_ = 0;
    std::size_t max_length_;
    const GoOn& go_on_;
    std::size_t steps_ = 0;
    std::vector<std::string> texts_;
    std::vector<u32> lengths_;  // in slots, by id: in units, unless `sizes_` says otherwise
    std::vector<std::size_t> sizes_;
    std::unordered_set<std::string> passed_over_;
    std::vector<u32> slots_, word_of_;
    std::vector<std::int64_t> weights_;
    std::vector<Pair> pairs_;
    std::vector<u32> places_;
    std::vector<Candidate> heap_;

    // Pair key -> its number. Open addressing; numbers of pairs that have been merged stay, and are never asked for.
    std::vector<std::pair<u64, u32>> index_;
    std::size_t indexed_ = 0;

    static constexpr u64 kNoPair = ~u64{0};
    static constexpr std::size_t kMostSlots = 0xFFFFFFF0;

    void step() {
        if (++steps_ % 4096 == 0) ask(&go_on_);
    }

    std::size_t home(u64 key) const {
        return ((key ^ key >> 29) * 0x9E3779B97F4A7C15u) >> (64 - static_cast<unsigned>(std::countr_zero(index_.size())));
    }
    std::pair<u64, u32>& find(u64 key) {
        std::size_t i = home(key);
        while (index_[i].first != key && index_[i].first != kNoPair) i = (i + 1) & (index_.size() - 1);
        return index_[i];
    }
    void add_pair(u64 key, std::int64_t count, u64 places, u32 number) {
        if ((indexed_ + 1) * 2 > index_.size()) {
            std::vector<std::pair<u64, u32>> old(index_.empty() ? 1 << 12 : index_.size() * 2, {kNoPair, 0});
            old.swap(index_);
            for (const auto& entry : old)
                if (entry.first != kNoPair && pairs_[entry.second].count >= min_frequency_) find(entry.first) = entry;
            indexed_ = static_cast<std::size_t>(std::count_if(index_.begin(), index_.end(), [](const auto& e) { return e.first != kNoPair; }));
        }
        find(key) = {key, static_cast<u32>(pairs_.size())};
        ++indexed_;
        pairs_.push_back({key, count, places, number});
        const u32 pair = static_cast<u32>(pairs_.size() - 1);
        heap_.push_back({count, tie_ == Tie::first_seen ? places_[places] : key, pair});
    }

    void find_pairs() {
        // Count each pair's places, then lay the lists out, then fill them.
        struct Seen {
            std::int64_t count = 0;
            u64 places = 0, filled = 0;
        };
        std::unordered_map<u64, Seen> seen;
        const auto each = [&](auto&& use) {
            for (std::size_t place = 1; place + 1 < slots_.size(); ++place, step())
                if (slots_[place] != kNone && slots_[place + 1] != kNone) use(u64{slots_[place]} << 32 | slots_[place + 1], place);
        };
        u64 last_key = kNoPair;
        Seen* last = nullptr;
        const auto look = [&](u64 key) {
            if (key != last_key) last = &seen[key], last_key = key;
            return last;
        };
        each([&](u64 key, std::size_t place) {
            Seen* pair = look(key);
            pair->count += weights_[word_of_[place]];
            ++pair->filled;
        });
        u64 total = 0;
        for (auto& [key, pair] : seen) {
            pair.places = total;
            total += pair.filled;
            pair.filled = 0;
        }
        places_.resize(total);
        each([&](u64 key, std::size_t place) {
            Seen* pair = look(key);
            places_[pair->places + pair->filled++] = static_cast<u32>(place);
        });
        for (const auto& [key, pair] : seen) {
            if (pair.count >= min_frequency_) add_pair(key, pair.count, pair.places, static_cast<u32>(pair.filled));
        }
        std::make_heap(heap_.begin(), heap_.end(), Worse{this});
    }

    bool refused(u32 left, u32 right) const {
        if (max_length_ && (sizes_.empty() ? lengths_[left] + lengths_[right] : sizes_[left] + sizes_[right]) > max_length_) return true;
        return !passed_over_.empty() && passed_over_.contains(texts_[left] + texts_[right]);
    }

    bool occurs(std::size_t place, u32 left, u32 right) const {
        return slots_[place] == left && slots_[place + lengths_[left]] == right;
    }

    // Where a pair occurs first now; the places before it have gone for good.
    u64 first_place(u32 number) {
        Pair& pair = pairs_[number];
        while (!occurs(places_[pair.places], static_cast<u32>(pair.key >> 32), static_cast<u32>(pair.key))) ++pair.places, --pair.number;
        return places_[pair.places];
    }

    // The pairs that a merge makes, by the id of the other token: (other, new) and (new, other).
    struct NewPair {
        u64 key;
        std::int64_t count;
        u32 first, last, number;  // a list within new_places_
    };
    std::vector<NewPair> new_pairs_;
    std::vector<std::pair<u32, u32>> new_places_;  // place, next in the list
    std::vector<u32> before_new_, after_new_;      // id -> its number among new_pairs_, or kNone

    NewPair& new_pair(std::vector<u32>& by_id, u32 other, u64 key) {
        if (by_id[other] == kNone) {
            by_id[other] = static_cast<u32>(new_pairs_.size());
            new_pairs_.push_back({key, 0, kNone, kNone, 0});
        }
        return new_pairs_[by_id[other]];
    }
    void add_place(NewPair& pair, std::int64_t weight, std::size_t place) {
        const u32 entry = static_cast<u32>(new_places_.size());
        new_places_.push_back({static_cast<u32>(place), kNone});
        if (pair.first == kNone) pair.first = entry;
        else new_places_[pair.last].second = entry;
        pair.last = entry;
        ++pair.number;
        pair.count += weight;
    }
    void lower(u32 left, u32 right, std::int64_t weight) {
        const auto& entry = find(u64{left} << 32 | right);
        if (entry.first != kNoPair) pairs_[entry.second].count -= weight;
    }

    void merge(u32 number, u32 a, u32 b, u32 made) {
        before_new_.resize(made + 1, kNone);
        after_new_.resize(made + 1, kNone);
        const u32 la = lengths_[a], lb = lengths_[b];
        const u64 begin = pairs_[number].places, end = begin + pairs_[number].number;
        for (u64 at = begin; at < end; ++at, step()) {
            if (at + 8 < end) __builtin_prefetch(&slots_[places_[at + 8]]);
            const std::size_t place = places_[at];
            if (!occurs(place, a, b)) continue;  // gone, or overlapped by the occurrence before it
            const std::size_t second = place + la, next = second + lb;
            const std::int64_t weight = weights_[word_of_[place]];
            const u32 left = slots_[place - 1], right = slots_[next];
            tokens_ -= weight;
            // Inner slots hold no id that a list might take for a token's beginning.
            slots_[second - 1] = slots_[second] = kInner;
            slots_[place] = slots_[next - 1] = made;
            if (left != kNone) {
                if (left == made) new_pair(after_new_, a, 0).count -= weight;
                else lower(left, a, weight);
                add_place(new_pair(left == made ? after_new_ : before_new_, left, u64{left} << 32 | made), weight, place - lengths_[left]);
            }
            if (right != kNone) {
                lower(b, right, weight);
                add_place(new_pair(after_new_, right, u64{made} << 32 | right), weight, place);
            }
        }
        pairs_[number].count = 0;
        for (const NewPair& pair : new_pairs_) {
            const u32 l = static_cast<u32>(pair.key >> 32), r = static_cast<u32>(pair.key);
            if (l == made) after_new_[r] = kNone;
            else before_new_[l] = kNone;
            if (pair.count < min_frequency_) continue;
            const u64 places = places_.size();
            u32 kept = 0;
            for (u32 entry = pair.first; entry != kNone; entry = new_places_[entry].second, step()) {
                if (!occurs(new_places_[entry].first, l, r)) continue;
                places_.push_back(new_places_[entry].first);
                ++kept;
            }
            add_pair(pair.key, pair.count, places, kept);
            std::push_heap(heap_.begin(), heap_.end(), Worse{this});
        }
        new_pairs_.clear();
        new_places_.clear();
    }

    static constexpr u32 kInner = kNone - 1;
};

}  // namespace minigpt
