// Piece -> ids, for pieces seen before: more than 99% of those of ordinary text.
//
// A piece of up to 8 bytes, as 90% are, is its own key, padded with zeros (pieces with a byte 0 are not kept). Four keys and
// what belongs to them share a cache line, and a piece can stand in one line only: a lookup touches one line, compares four
// keys at once, and has no loop and no branch but the one for "not there". Up to three ids stand in the line itself; more
// of them stand elsewhere, and the line says where. The tables double while they fill, up to 16 MiB; from then on a new piece
// takes the place of another. Pieces of 9 to 16 and of 17 to 32 bytes have tables of the same design (24 and 12 MiB), and
// longer ones an ordinary one (16 MiB). Memory of a worker: 80 MiB at most.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "ids.hpp"

namespace minigpt {

// What a piece is known to give, in a word: three ids at most, the first at the bottom, and their count above; or, with the
// top bit set, where there are more, and how many.
constexpr u64 kElsewhere = u64{1} << 63;
constexpr u64 kUnknown = ~u64{0};
constexpr unsigned kPlaceBits = 40;
inline u64 elsewhere(std::size_t place, std::size_t count) { return kElsewhere | u64{count} << kPlaceBits | place; }
inline std::size_t place_of(u64 word) { return word & ((u64{1} << kPlaceBits) - 1); }
inline std::size_t count_elsewhere(u64 word) { return (word & ~kElsewhere) >> kPlaceBits; }

template <class Id>
struct Packed {
    static constexpr std::size_t kMost = 3;
    static constexpr unsigned kBits = sizeof(Id) == 2 ? 16 : 20;  // of an id; larger ones stand elsewhere
    static constexpr unsigned kCountShift = 3 * kBits;

    static bool pack(const u32* ids, std::size_t count, u64& word) {
        if (count > kMost) return false;
        word = u64{count} << kCountShift;
        for (std::size_t i = 0; i < count; ++i) {
            if (ids[i] >> kBits) return false;
            word |= u64{ids[i]} << (kBits * i);
        }
        return true;
    }
    // All three places are written, whatever the count.
    static void store(u64 word, Id* to) {
        if constexpr (sizeof(Id) == 2) {
            std::memcpy(to, &word, 8);
        } else {
            const u64 two = (word & 0xFFFFF) | (word << 12 & u64{0xFFFFF} << 32);
            const u32 third = word >> 40 & 0xFFFFF;
            std::memcpy(to, &two, 8);
            std::memcpy(to + 2, &third, 4);
        }
    }
};

// A table of lines. `Key` is a word, or two, or four.
template <class Key>
class LineTable {
   public:
    static constexpr std::size_t kWays = sizeof(Key) <= 16 ? 4 : 2;
    static constexpr std::size_t kFewestLines = std::size_t{1} << 9;
    static constexpr std::size_t kMostLines = (std::size_t{sizeof(Key) <= 16 ? 16 : 8} << 20) / (kWays * (sizeof(Key) + 8));

    struct alignas(32) Line {
        Key keys[kWays];
        u64 values[kWays];
    };

    LineTable() { allocate(kFewestLines); }

    std::size_t line(Key key) const { return hash(key) >> shift_; }
    void prefetch(std::size_t line) const { __builtin_prefetch(lines_.get() + line); }
    // The value of a key, or kUnknown.
    u64 find(Key key, std::size_t line) const { return find_in(lines_[line], key); }

    void insert(Key key, u64 value) {
        if (used_ * 4 > size_ * kWays && size_ < kMostLines) grow();  // fuller, and more than one line in 300 would overflow
        put(key, value);
    }

   private:
    struct Free {
        void operator()(void* p) const { std::free(p); }
    };
    std::unique_ptr<Line[], Free> lines_;
    std::size_t size_ = 0, used_ = 0;
    unsigned shift_ = 0, victim_ = 0;

    static u64 hash(u64 key) { return key * 0x9E3779B97F4A7C15u; }
    static u64 hash(const std::array<u64, 2>& key) { return key[0] * 0x9E3779B97F4A7C15u + key[1] * 0xD6E8FEB86659FD93u; }
    static u64 hash(const std::array<u64, 4>& key) {
        return hash(std::array{key[0], key[1]}) + (key[2] * 0xA0761D6478BD642Fu ^ key[3] * 0xE7037ED1A0B428DBu);
    }

    static u64 find_in(const Line& line, u64 key) {
#if defined(__AVX2__)
        const __m256i keys = _mm256_load_si256(reinterpret_cast<const __m256i*>(line.keys));
        const __m256i equal = _mm256_cmpeq_epi64(keys, _mm256_set1_epi64x(static_cast<long long>(key)));
        const unsigned mask = static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(equal)));
        return mask ? line.values[std::countr_zero(mask)] : kUnknown;
#else
        unsigned way = kWays;
        for (unsigned k = 0; k < kWays; ++k) way = line.keys[k] == key ? k : way;
        return way < kWays ? line.values[way] : kUnknown;
#endif
    }
    template <std::size_t words>
    static u64 find_in(const Line& line, const std::array<u64, words>& key) {
        unsigned way = kWays;
        for (unsigned k = 0; k < kWays; ++k) way = line.keys[k] == key ? k : way;
        return way < kWays ? line.values[way] : kUnknown;
    }

    void allocate(std::size_t size) {
        constexpr std::size_t huge = std::size_t{2} << 20;
        const std::size_t alignment = size * sizeof(Line) >= huge ? huge : 64;
        const std::size_t bytes = (size * sizeof(Line) + alignment - 1) & ~(alignment - 1);  // as aligned_alloc wants it
        void* memory = std::aligned_alloc(alignment, bytes);
        if (!memory) throw std::bad_alloc();
#if defined(__linux__)
        if (bytes >= huge) madvise(memory, bytes, MADV_HUGEPAGE);  // before the first touch: one fault instead of 512
#endif
        std::memset(memory, 0, bytes);
        lines_.reset(static_cast<Line*>(memory));
        size_ = size, used_ = 0;
        shift_ = 64 - static_cast<unsigned>(std::countr_zero(size));
    }

    void put(Key key, u64 value) {
        Line& line = lines_[this->line(key)];
        unsigned way = 0;
        while (way < kWays && line.keys[way] != Key{}) ++way;
        if (way < kWays) ++used_;
        else way = victim_++ % kWays;
        line.keys[way] = key;
        line.values[way] = value;
    }

    void grow() {
        const std::unique_ptr<Line[], Free> old = std::move(lines_);
        const std::size_t lines = size_;
        allocate(lines * 2);
        for (std::size_t i = 0; i < lines; ++i)
            for (unsigned way = 0; way < kWays; ++way)
                if (old[i].keys[way] != Key{}) put(old[i].keys[way], old[i].values[way]);
    }
};

inline u64 hash_text(std::string_view text) {
    u64 h = text.size() * 0x9E3779B97F4A7C15u, word;
    std::size_t i = 0;
    for (; i + 8 <= text.size(); i += 8) {
        std::memcpy(&word, text.data() + i, 8);
        h = (h ^ word) * 0xD6E8FEB86659FD93u;
        h ^= h >> 32;
    }
    word = 0;
    std::memcpy(&word, text.data() + i, text.size() - i);
    h = (h ^ word) * 0xD6E8FEB86659FD93u;
    return h ^ h >> 32;
}

template <class Id>
class LongCache {
   public:
    static constexpr std::size_t kLongBytes = std::size_t{16} << 20;

    struct Found {
        const Id* ids;
        std::size_t count;
    };

    bool find(std::string_view piece, u64 hash, Found& found) const {
        if (slots_.empty()) return false;
        for (std::size_t i = hash & (slots_.size() - 1); slots_[i].length; i = (i + 1) & (slots_.size() - 1)) {
            const Slot& slot = slots_[i];
            if (slot.hash == hash && slot.length == piece.size() && !std::memcmp(text_.data() + slot.text, piece.data(), piece.size())) {
                found = {ids_.data() + slot.ids, slot.count};
                return true;
            }
        }
        return false;
    }

    void insert(std::string_view piece, u64 hash, const u32* ids, std::size_t count) {
        if (used_ * 2 >= slots_.size()) grow();
        if (text_.capacity() + ids_.capacity() * sizeof(Id) + slots_.size() * sizeof(Slot) > kLongBytes) *this = LongCache(), grow();
        std::size_t i = hash & (slots_.size() - 1);
        while (slots_[i].length) i = (i + 1) & (slots_.size() - 1);
        slots_[i] = {hash, static_cast<u32>(text_.size()), static_cast<u32>(piece.size()), static_cast<u32>(ids_.size()),
                     static_cast<u32>(count)};
        text_.append(piece);
        for (std::size_t k = 0; k < count; ++k) ids_.push_back(static_cast<Id>(ids[k]));
        ++used_;
    }

   private:
    struct Slot {
        u64 hash;
        u32 text, length, ids, count;
    };
    std::vector<Slot> slots_;
    std::size_t used_ = 0;
    std::string text_;
    std::vector<Id> ids_;

    void grow() {
        std::vector<Slot> old(slots_.empty() ? 256 : slots_.size() * 2);
        old.swap(slots_);
        for (const Slot& slot : old) {
            if (!slot.length) continue;
            std::size_t i = slot.hash & (slots_.size() - 1);
            while (slots_[i].length) i = (i + 1) & (slots_.size() - 1);
            slots_[i] = slot;
        }
    }
};

}  // namespace minigpt
