// Learning merges in flat arrays.
//
// All distinct pieces lie end to end in one array, a slot a token, with a wall after each. A merge moves nothing: the token that
// it makes has its id in the first and in the last of the slots of its parts, so both neighbours are found from a place without
// any links: to the right after the token's width, to the left from the id just before. For every pair whose count reaches a
// floor there is the list of places where it came to be, and its count; both only shrink once the pair exists, because all its
// occurrences appear in the one merge that makes the younger of its tokens. So a pair below the floor stays there, and is not
// kept; and places that have gone are passed over when the pair's turn comes. When no pair reaches the floor any more, or the
// lists have grown long, the array is closed up, pieces of one token left out, and pairs are found anew, to a lower floor.
//
// Cost: O(1) for each replacement, and some ten walks through the array. Memory: 4.5 bytes for each unit of the distinct pieces,
// 12 for each piece, and lists of about a quarter of that; counts are 64-bit.
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
        : tie_(tie), min_frequency_(min_frequency), max_length_(max_length), go_on_(go_on), texts_(std::move(base)), lengths_(texts_.size(), 1), widths_(texts_.size(), 1) {
        slots_.push_back(kNone);
    }

    // For a tokenizer that is trained further: its tokens are the base, each of so many units (a slot each all the same), and
    // some bytes are not made by any merge.
    void continue_from(const std::vector<std::size_t>& sizes, std::unordered_set<std::string> passed_over) {
        lengths_.assign(sizes.begin(), sizes.end());
        passed_over_ = std::move(passed_over);
    }

    void reserve(std::size_t units, std::size_t pieces) {
        slots_.reserve(units + pieces + 1);
        weights_.reserve(pieces);
        ends_.reserve(pieces);
    }

    void begin_piece(std::int64_t count) { weights_.push_back(count); }
    void add_unit(u32 id) {
        slots_.push_back(id);
        tokens_ += weights_.back();
        step();
    }
    void end_piece() {
        slots_.push_back(kNone);
        if (slots_.size() > kMostSlots)
            throw std::overflow_error("the distinct pieces of the training text are longer than 4 GiB together, the most that can be trained on");
        ends_.push_back(static_cast<u32>(slots_.size()));
    }

    std::int64_t tokens() const { return tokens_; }

    // Up to `most` merges; `progress` is told now and then how many there are.
    void learn(std::size_t most, std::vector<LearnedMerge>& merges, const std::function<void(std::size_t)>& progress) {
        most_places_ = std::min(slots_.size(), std::max(kFewPlaces, slots_.size() / 4));
        // The last merge of much text counts more than this; if not, the floor is lowered.
        least_floor_ = std::max(min_frequency_, tokens_ / 256 / static_cast<std::int64_t>(std::max<std::size_t>(most, 1)));
        while (merges.size() < most && find_pairs())
            while (merges.size() < most && !heap_.empty() && places_.size() <= full_) {
                ask(&go_on_);
                const Candidate top = heap_.front();
                const std::int64_t count = pairs_[top.pair].count;
                const u64 order = count >= floor_ && tie_ == Tie::first_seen ? first_place(top.pair) : top.order;
                std::pop_heap(heap_.begin(), heap_.end(), Worse{this});
                if (count != top.count || order != top.order) {  // out of date: back with what is true now
                    if (count < floor_) {
                        heap_.pop_back();
                    } else {
                        heap_.back() = {count, order, top.pair};
                        std::push_heap(heap_.begin(), heap_.end(), Worse{this});
                    }
                    continue;
                }
                heap_.pop_back();
                const u32 left = static_cast<u32>(pairs_[top.pair].key >> 32), right = static_cast<u32>(pairs_[top.pair].key);
                lengths_.push_back(lengths_[left] + lengths_[right]);
                widths_.push_back(widths_[left] + widths_[right]);
                if (tie_ == Tie::greatest_bytes || !passed_over_.empty()) texts_.push_back(texts_[left] + texts_[right]);
                merge(top.pair, left, right, static_cast<u32>(lengths_.size() - 1));
                merges.push_back({left, right, count, tokens_});
                if (merges.size() % 256 == 0) progress(merges.size());
            }
    }

    // The count of the best pair that is left after `learn` ended before its time, 0 if none is; pairs that would be too long,
    // or are passed over, do not count. It is less than `min_frequency`, so the search ends where that much is found.
    std::int64_t best_left() {
        std::unordered_map<u64, std::int64_t> left;
        std::int64_t best = 0;
        for (std::size_t place = 1; place + 1 < slots_.size() && best + 1 < min_frequency_; step()) {
            const std::size_t next = slots_[place] == kNone ? place + 1 : place + widths_[slots_[place]];
            if (slots_[place] != kNone && slots_[next] != kNone && !too_long(slots_[place], slots_[next]) && !passed_over(slots_[place], slots_[next]))
                best = std::max(best, left[u64{slots_[place]} << 32 | slots_[next]] += weight(place));
            place = next;
        }
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
    std::vector<u32> lengths_, widths_;  // by id: in units; in slots
    std::unordered_set<std::string> passed_over_;
    std::vector<u32> slots_;
    std::vector<std::int64_t> weights_;  // of the pieces
    std::vector<u32> ends_, piece_at_;   // where each piece ends, its wall included; the piece at each kBlock-th slot
    std::int64_t floor_ = 0, least_floor_ = 0;  // the one below which no pair is kept; the lowest at present
    std::size_t most_places_ = 0, full_ = 0;    // places in all lists: about so many at first; with more, all is found anew
    std::vector<Pair> pairs_;
    std::vector<u32> places_;
    std::vector<Candidate> heap_;

    // Pair key -> its number. Open addressing; numbers of pairs that have been merged stay, and are never asked for.
    std::vector<std::pair<u64, u32>> index_;
    std::size_t indexed_ = 0;

    static constexpr u64 kNoPair = ~u64{0};
    static constexpr std::size_t kMostSlots = 0xFFFFFFF0, kBlock = 8, kFewPlaces = 1 << 21;
    static constexpr u32 kInner = kNone - 1;

    void step() {
        if (++steps_ % 4096 == 0) ask(&go_on_);
    }

    std::int64_t weight(std::size_t place) const {
        std::size_t piece = piece_at_[place / kBlock];
        while (ends_[piece] <= place) ++piece;
        return weights_[piece];
    }

    static std::size_t home(u64 key, std::size_t size) {
        return ((key ^ key >> 29) * 0x9E3779B97F4A7C15u) >> (64 - static_cast<unsigned>(std::countr_zero(size)));
    }
    std::pair<u64, u32>& find(u64 key) {
        std::size_t i = home(key, index_.size());
        while (index_[i].first != key && index_[i].first != kNoPair) i = (i + 1) & (index_.size() - 1);
        return index_[i];
    }
    u32 add_pair(u64 key, std::int64_t count, u64 places, u32 number) {
        if ((indexed_ + 1) * 2 > index_.size()) {
            std::vector<std::pair<u64, u32>> old(index_.size() * 2, {kNoPair, 0});
            old.swap(index_);
            for (const auto& entry : old)
                if (entry.first != kNoPair) find(entry.first) = entry;
        }
        find(key) = {key, static_cast<u32>(pairs_.size())};
        ++indexed_;
        pairs_.push_back({key, count, places, number});
        return static_cast<u32>(pairs_.size() - 1);
    }
    Candidate candidate(u32 pair) const {
        return {pairs_[pair].count, tie_ == Tie::first_seen ? places_[pairs_[pair].places] : pairs_[pair].key, pair};
    }

    void close_up() {
        std::size_t to = 1, kept = 0, from = 1;
        for (std::size_t piece = 0; piece < weights_.size(); ++piece, step()) {
            const std::size_t wall = ends_[piece] - 1;
            if (from < wall && from + widths_[slots_[from]] < wall) {
                for (u32 id; from < wall; from += widths_[id], step()) slots_[to++] = id = slots_[from];
                slots_[to++] = kNone;
                weights_[kept] = weights_[piece];
                ends_[kept++] = static_cast<u32>(to);
            }
            from = wall + 1;
        }
        std::fill(widths_.begin(), widths_.end(), 1);
        slots_.resize(to), weights_.resize(kept), ends_.resize(kept);
        for (auto* column : {&slots_, &ends_})
            if (column->size() < column->capacity() / 2) column->shrink_to_fit();
        piece_at_.resize(to / kBlock + 1);
        for (std::size_t block = 0, piece = 0; block < piece_at_.size(); ++block, step()) {
            while (piece + 1 < kept && ends_[piece] <= block * kBlock) ++piece;
            piece_at_[block] = static_cast<u32>(piece);
        }
    }

    // Calls `use` for every pair of neighbours in a closed array: its key, its place, how often its piece occurs.
    template <class Use>
    void each_pair(const Use& use) {
        std::size_t place = 1;
        for (std::size_t piece = 0; piece < weights_.size(); place = ends_[piece++])
            for (; place + 2 < ends_[piece]; ++place, step())
                if (!too_long(slots_[place], slots_[place + 1])) use(u64{slots_[place]} << 32 | slots_[place + 1], place, weights_[piece]);
    }

    // Closes the array up and finds the pairs that reach a floor as low as lists of `most_places_` allow; false if none is left.
    bool find_pairs() {
        close_up();
        // A rough count first, for which pairs share buckets: a bucket counts no less than any of its pairs.
        struct Bucket {
            std::int64_t count = 0;
            u64 places = 0;
        };
        std::vector<Bucket> buckets(std::bit_ceil(std::clamp<std::size_t>(slots_.size() / 16, 16, 1 << 18)));
        const auto bucket = [&](u64 key) -> Bucket& { return buckets[home(key, buckets.size())]; };
        each_pair([&](u64 key, std::size_t, std::int64_t weight) {
            Bucket& its = bucket(key);
            its.count += weight;
            ++its.places;
        });
        u64 places_by_width[65] = {};  // of buckets whose counts have so many binary digits
        for (const Bucket& one : buckets)
            if (one.count >= min_frequency_) places_by_width[std::bit_width(static_cast<u64>(one.count))] += one.places;
        int width = 64;
        while (width && !places_by_width[width]) --width;
        for (u64 places = places_by_width[width]; width > 1 && (places += places_by_width[width - 1]) <= most_places_;) --width;
        while (width) {
            floor_ = std::max(least_floor_, std::int64_t{1} << (width - 1));
            list_pairs([&](u64 key) { return bucket(key).count >= floor_; });
            if (!heap_.empty()) return true;
            if (floor_ == min_frequency_) return false;
            if (floor_ == least_floor_) least_floor_ = std::max(min_frequency_, floor_ / 16);
            else --width;
        }
        return false;
    }

    // Lists and candidates of the pairs that reach the floor; those for which `may_reach` is false are known not to.
    template <class MayReach>
    void list_pairs(const MayReach& may_reach) {
        pairs_.clear(), heap_.clear();
        index_.assign(1 << 10, {kNoPair, 0});
        indexed_ = 0;
        u64 last_key = kNoPair;
        u32 last = 0;
        const auto look = [&](u64 key) -> Pair& {
            if (key != last_key) {
                const auto& entry = find(last_key = key);
                last = entry.first == key ? entry.second : add_pair(key, 0, 0, 0);
            }
            return pairs_[last];
        };
        each_pair([&](u64 key, std::size_t, std::int64_t weight) {
            if (!may_reach(key)) return;
            Pair& pair = look(key);
            pair.count += weight;
            ++pair.number;
        });
        u64 total = 0;
        for (Pair& pair : pairs_) {
            pair.places = total;
            if (pair.count >= floor_) total += pair.number;
            pair.number = 0;
        }
        full_ = total + most_places_;
        places_.reserve(full_ + most_places_ / 4);
        places_.resize(total);
        each_pair([&](u64 key, std::size_t place, std::int64_t) {
            if (!may_reach(key)) return;
            Pair& pair = look(key);
            if (pair.count >= floor_) places_[pair.places + pair.number++] = static_cast<u32>(place);
        });
        for (u32 pair = 0; pair < pairs_.size(); ++pair)
            if (pairs_[pair].count >= floor_ && !passed_over(static_cast<u32>(pairs_[pair].key >> 32), static_cast<u32>(pairs_[pair].key)))
                heap_.push_back(candidate(pair));
        std::make_heap(heap_.begin(), heap_.end(), Worse{this});
    }

    bool too_long(u32 left, u32 right) const { return max_length_ && u64{lengths_[left]} + lengths_[right] > max_length_; }
    bool passed_over(u32 left, u32 right) const { return !passed_over_.empty() && passed_over_.contains(texts_[left] + texts_[right]); }

    bool occurs(std::size_t place, u32 left, u32 right) const {
        return slots_[place] == left && slots_[place + widths_[left]] == right;
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
        const u32 wa = widths_[a], wb = widths_[b];
        const u64 begin = pairs_[number].places, end = begin + pairs_[number].number;
        for (u64 at = begin; at < end; ++at, step()) {
            if (at + 8 < end) __builtin_prefetch(&slots_[places_[at + 8]]);
            const std::size_t place = places_[at];
            if (!occurs(place, a, b)) continue;  // gone, or overlapped by the occurrence before it
            const std::size_t second = place + wa, next = second + wb;
            const std::int64_t weight = this->weight(place);
            const u32 left = slots_[place - 1], right = slots_[next];
            tokens_ -= weight;
            // Inner slots hold no id that a list might take for a token's beginning.
            slots_[second - 1] = slots_[second] = kInner;
            slots_[place] = slots_[next - 1] = made;
            if (left != kNone) {
                if (left == made) new_pair(after_new_, a, 0).count -= weight;
                else lower(left, a, weight);
                add_place(new_pair(left == made ? after_new_ : before_new_, left, u64{left} << 32 | made), weight, place - widths_[left]);
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
            if (pair.count < floor_ || too_long(l, r) || passed_over(l, r)) continue;
            const u64 places = places_.size();
            u32 kept = 0;
            for (u32 entry = pair.first; entry != kNone; entry = new_places_[entry].second, step()) {
                if (!occurs(new_places_[entry].first, l, r)) continue;
                places_.push_back(new_places_[entry].first);
                ++kept;
            }
            heap_.push_back(candidate(add_pair(pair.key, pair.count, places, kept)));
            std::push_heap(heap_.begin(), heap_.end(), Worse{this});
        }
        new_pairs_.clear();
        new_places_.clear();
    }
};

}  // namespace minigpt
