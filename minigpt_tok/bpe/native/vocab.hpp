// The model as tables: what merges with what, and the merging of one piece.
//
// Both rank rules come down to one table, (left id, right id) -> (rank, merged id): by pair it is the merge list; by bytes
// every way to split a token into two tokens, ranked by the token's id. A piece of up to kSmall units is merged in plain
// arrays, the least rank found by looking at all; a longer one from a heap, O(n log n) whatever the text.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>

#include "cache.hpp"
#include "stop.hpp"
#include "text.hpp"

namespace minigpt {

constexpr u32 kNone = 0xFFFFFFFF;

// (left id, right id) -> (rank, merged id). Open addressing, linear probing, at most half full. Most pairs that are asked for
// do not merge: a byte for each slot, which are few enough for the processor's cache, answers for those.
class PairTable {
   public:
    struct Slot {
        u64 pair;
        u32 rank, merged;
    };

    void reserve(std::size_t pairs) {
        std::size_t size = 16;
        while (size < pairs * 2) size *= 2;
        slots_.assign(size, kAbsent);
        tags_.assign(size, 0);
        shift_ = 64 - static_cast<unsigned>(std::countr_zero(size));
    }
    // Of a pair that stands twice the last rank counts, as in Hugging Face.
    void add(u32 left, u32 right, u32 rank, u32 merged) {
        const u64 pair = key(left, right), h = hash(pair);
        std::size_t i = h >> shift_;
        while (tags_[i] && slots_[i].pair != pair) i = (i + 1) & (slots_.size() - 1);
        tags_[i] = tag(h);
        slots_[i] = {pair, rank, merged};
    }
    const Slot& at(u32 left, u32 right) const {
        const u64 pair = key(left, right), h = hash(pair);
        for (std::size_t i = h >> shift_;; i = (i + 1) & (slots_.size() - 1)) {
            if (!tags_[i]) return kAbsent;
            if (tags_[i] == tag(h) && slots_[i].pair == pair) return slots_[i];
        }
    }

   private:
    static constexpr Slot kAbsent{~u64{0}, kNone, kNone};
    std::vector<Slot> slots_ = std::vector<Slot>(16, kAbsent);
    std::vector<u8> tags_ = std::vector<u8>(16);
    unsigned shift_ = 60;

    static u64 key(u32 left, u32 right) { return u64{left} << 32 | right; }
    static u64 hash(u64 pair) { return pair * 0x9E3779B97F4A7C15u ^ (pair >> 32) * 0xC2B2AE3D27D4EB4Fu; }
    static u8 tag(u64 hash) { return static_cast<u8>(hash >> 8 | 1); }
};

class Vocab {
   public:
    static constexpr std::size_t kSmall = 64;  // units, as many as a word has bits

    // tokens[id]: raw bytes, or no value where the id is an added token's or a hole.
    Vocab(const std::vector<std::string>& tokens, const std::vector<bool>& present, bool characters, bool whole_piece)
        : characters_(characters), whole_piece_(whole_piece), size_(tokens.size()) {
        std::size_t bytes = 0;
        for (const auto& token : tokens) bytes += token.size();
        arena_.reserve(bytes + 16);  // decoding copies 16 bytes at a time
        offsets_.reserve(tokens.size() + 1);
        offsets_.push_back(0);
        for (const auto& token : tokens) {
            arena_.append(token);
            offsets_.push_back(static_cast<u32>(arena_.size()));
        }
        arena_.append(16, '\0');
        byte_ids_.fill(kNone);
        while (slots_.size() < tokens.size() * 2) slots_.resize(slots_.size() * 2);
        for (std::size_t id = 0; id < tokens.size(); ++id) {
            if (!present[id]) continue;
            put(static_cast<u32>(id));
            if (!characters && tokens[id].size() == 1) byte_ids_[static_cast<u8>(tokens[id][0])] = static_cast<u32>(id);
        }
    }

    void set_character(u32 code_point, u32 id) { character_ids_[code_point] = id; }

    void merge_by_pair(const std::vector<u32>& lefts, const std::vector<u32>& rights, const std::vector<u32>& results) {
        pairs_.reserve(lefts.size());
        for (std::size_t rank = 0; rank < lefts.size(); ++rank)
            pairs_.add(lefts[rank], rights[rank], static_cast<u32>(rank), results[rank]);
        note_byte_pairs();
        note_neighbours();
    }
    void merge_by_bytes() {
        // Halves are looked for only where both lengths occur, so that a very long token costs no quadratic time.
        std::vector<bool> lengths;
        each_token([&](std::string_view token, u32) {
            if (token.size() >= lengths.size()) lengths.resize(token.size() + 1);
            lengths[token.size()] = true;
        });
        std::vector<std::array<u32, 3>> splits;
        each_token([&](std::string_view token, u32 id) {
            for (std::size_t cut = 1; cut < token.size(); ++cut) {
                if (!lengths[cut] || !lengths[token.size() - cut]) continue;
                const u32 left = id_of(token.substr(0, cut));
                if (left == kNone) continue;
                if (const u32 right = id_of(token.substr(cut)); right != kNone) splits.push_back({left, right, id});
            }
        });
        pairs_.reserve(splits.size());
        for (const auto& [left, right, id] : splits) pairs_.add(left, right, id, id);
        note_byte_pairs();
        note_neighbours();
    }

    std::size_t size() const { return size_; }
    bool characters() const { return characters_; }
    std::string_view bytes_of(u32 id) const { return {arena_.data() + offsets_[id], offsets_[id + 1] - offsets_[id]}; }
    const char* start_of(u32 id) const { return arena_.data() + offsets_[id]; }
    u32 length_of(u32 id) const { return offsets_[id + 1] - offsets_[id]; }

    // The ids of one piece, onto the end of `ids`. False if it has a character that a character tokenizer lacks. A piece that
    // takes long asks whether to go on.
    bool encode(std::string_view piece, std::vector<u32>& ids, std::vector<u32>& units, const GoOn* go_on = nullptr) const {
        if (whole_piece_)
            if (const u32 whole = id_of(piece); whole != kNone) {
                ids.push_back(whole);
                return true;
            }
        units.clear();
        if (piece.size() > kSmall) units.reserve(piece.size());
        const u8* s = reinterpret_cast<const u8*>(piece.data());
        if (characters_) {
            for (const u8* end = s + piece.size(); s < end; s += utf8_length(*s)) {
                const auto id = character_ids_.find(decode_utf8(s));
                if (id == character_ids_.end()) return false;
                units.push_back(id->second);
            }
        } else {
            // As in Hugging Face, a byte that the vocabulary lacks is dropped, and its neighbours come to be neighbours.
            for (std::size_t i = 0; i < piece.size(); ++i)
                if (byte_ids_[s[i]] != kNone) units.push_back(byte_ids_[s[i]]);
        }
        const bool all_bytes = !characters_ && units.size() == piece.size();
        if (units.size() <= kSmall) merge_small(units.data(), units.size(), ids, kNone, all_bytes ? reinterpret_cast<const u8*>(piece.data()) : nullptr);
        else merge_by_heap(units.data(), units.size(), ids, go_on);
        return true;
    }

    // The token's bytes merged with ranks below `limit` only, onto the end of `ids`; false if a byte is missing. (Bytes only.)
    bool merge_token(u32 id, u32 limit, std::vector<u32>& ids, std::vector<u32>& units) const {
        units.clear();
        for (const char byte : bytes_of(id)) {
            if (byte_ids_[static_cast<u8>(byte)] == kNone) return false;
            units.push_back(byte_ids_[static_cast<u8>(byte)]);
        }
        if (units.size() <= kSmall) merge_small(units.data(), units.size(), ids, limit, nullptr);
        else merge_by_heap(units.data(), units.size(), ids, nullptr, limit);
        return true;
    }

    // Whether the units on the two sides of a place in UTF-8 text may come to stand in one token. Where not, a piece can be
    // cut without changing its ids. (Never asked inside a character of a character tokenizer.)
    bool may_join(const u8* before, const u8* after) const {
        if (!characters_) return neighbours_[*before << 8 | *after];
        const auto pair = u64{decode_utf8(before)} << 32 | decode_utf8(after);
        return std::binary_search(character_neighbours_.begin(), character_neighbours_.end(), pair);
    }

   private:
    bool characters_, whole_piece_;
    std::size_t size_;
    std::string arena_;
    std::vector<u32> offsets_;
    std::array<u32, 256> byte_ids_;
    std::unordered_map<u32, u32> character_ids_;
    struct Slot {
        u32 hash, id = kNone;
    };
    std::vector<Slot> slots_ = std::vector<Slot>(16);  // token -> id, at most half full
    PairTable pairs_;
    struct BytePair {
        u32 rank = kNone, merged = kNone;
    };
    std::vector<BytePair> byte_pairs_;  // what two bytes merge to: every piece begins with these pairs
    const BytePair& pair_of(u8 left, u8 right) const { return byte_pairs_[left << 8 | right]; }
    std::vector<bool> neighbours_;
    std::vector<u64> character_neighbours_;

    // Of equal tokens the last counts, as in BPEModel.
    void put(u32 id) {
        Slot& slot = find(bytes_of(id));
        slot = {short_hash(bytes_of(id)), id};
    }
    u32 id_of(std::string_view token) const { return const_cast<Vocab*>(this)->find(token).id; }
    Slot& find(std::string_view token) {
        const u32 hash = short_hash(token);
        std::size_t i = hash & (slots_.size() - 1);
        while (slots_[i].id != kNone && !(slots_[i].hash == hash && bytes_of(slots_[i].id) == token)) i = (i + 1) & (slots_.size() - 1);
        return slots_[i];
    }
    static u32 short_hash(std::string_view token) { return static_cast<u32>(hash_text(token)); }
    template <class Use>
    void each_token(const Use& use) const {
        for (const Slot& slot : slots_)
            if (slot.id != kNone) use(bytes_of(slot.id), slot.id);
    }

    void note_byte_pairs() {
        byte_pairs_.resize(1 << 16);
        for (unsigned left = 0; left < 256; ++left)
            for (unsigned right = 0; right < 256; ++right) {
                if (byte_ids_[left] == kNone || byte_ids_[right] == kNone) continue;
                const auto& slot = pairs_.at(byte_ids_[left], byte_ids_[right]);
                byte_pairs_[left << 8 | right] = {slot.rank, slot.merged};
            }
    }

    void note_neighbours() {
        if (!characters_) neighbours_.assign(1 << 16, false);
        each_token([&](std::string_view token, u32) {
            const u8* s = reinterpret_cast<const u8*>(token.data());
            const u8* end = s + token.size();
            if (characters_)
                for (const u8* next; (next = s + utf8_length(*s)) < end; s = next)
                    character_neighbours_.push_back(u64{decode_utf8(s)} << 32 | decode_utf8(next));
            else
                for (; s + 1 < end; ++s) neighbours_[s[0] << 8 | s[1]] = true;
        });
        std::sort(character_neighbours_.begin(), character_neighbours_.end());
        if (characters_) return;
        for (unsigned byte = 0; byte < 256; ++byte)
            if (byte_ids_[byte] == kNone)
                for (unsigned other = 0; other < 256; ++other) neighbours_[byte << 8 | other] = neighbours_[other << 8 | byte] = true;
    }

    // The first place of the least rank. What is behind the last rank, up to a multiple of 16, must be kNone.
    static std::size_t least(const u32* ranks, std::size_t n) {
#if defined(__AVX512F__)
        __m512i best = _mm512_load_si512(ranks);
        for (std::size_t i = 16; i < n; i += 16) best = _mm512_min_epu32(best, _mm512_load_si512(ranks + i));
        const __m512i least = _mm512_set1_epi32(static_cast<int>(_mm512_reduce_min_epu32(best)));
        std::size_t i = 0;
        for (;; i += 16)
            if (const unsigned found = _mm512_cmpeq_epi32_mask(_mm512_load_si512(ranks + i), least))
                return i + static_cast<std::size_t>(std::countr_zero(found));
#else
        std::size_t best = 0;
        for (std::size_t i = 1; i < n; ++i)
            if (ranks[i] < ranks[best]) best = i;
        return best;
#endif
    }

    // Only ranks below `limit` merge. A token stays where it begins; `alive` has a bit for every place where one does.
    // `bytes`, where given, are what the ids stand for.
    void merge_small(u32* ids, std::size_t n, std::vector<u32>& out, u32 limit, const u8* bytes) const {
        if (n == 0) return;
        alignas(64) u32 ranks[kSmall];  // of the pair that begins at each place
        u32 merged[kSmall];
        std::fill(ranks, ranks + ((n + 15) & ~std::size_t{15}), kNone);
        const auto look = [&](std::size_t left, std::size_t right) {
            const auto& slot = pairs_.at(ids[left], ids[right]);
            ranks[left] = slot.rank < limit ? slot.rank : kNone, merged[left] = slot.merged;
        };
        for (std::size_t i = 0; i + 1 < n; ++i) {
            if (bytes) ranks[i] = pair_of(bytes[i], bytes[i + 1]).rank, merged[i] = pair_of(bytes[i], bytes[i + 1]).merged;
            else look(i, i + 1);
        }
        u64 alive = ~u64{0} >> (64 - n);
        for (;;) {
            const std::size_t place = least(ranks, n);
            if (ranks[place] == kNone) break;
            ids[place] = merged[place];
            const u64 behind = ~u64{0} << place << 1;
            const auto second = static_cast<std::size_t>(std::countr_zero(alive & behind));
            alive &= ~(u64{1} << second);
            ranks[second] = kNone;
            if (const u64 rest = alive & behind) look(place, static_cast<std::size_t>(std::countr_zero(rest)));
            else ranks[place] = kNone;
            if (const u64 before = alive & ~(~u64{0} << place)) look(63 - static_cast<std::size_t>(std::countl_zero(before)), place);
        }
        for (; alive; alive &= alive - 1) out.push_back(ids[std::countr_zero(alive)]);
    }

    void merge_by_heap(u32* ids, std::size_t n, std::vector<u32>& out, const GoOn* go_on, u32 limit = kNone) const {
        std::size_t steps = 0;
        const auto step = [&] {
            if (++steps % 4096 == 0) ask(go_on);
        };
        // Laid out one after the other: of a piece of many megabytes, each takes a while.
        std::vector<u32> after(n), before, ranks, merged;  // of the token that begins at each place; its pair to the right
        for (auto* column : {&before, &ranks, &merged}) {
            ask(go_on);
            column->resize(n, kNone);
        }
        std::vector<u64> heap;  // rank, place; an entry is out of date once ranks[place] is another
        const auto later = std::greater<u64>();
        const auto look = [&](std::size_t i) {
            ranks[i] = kNone;
            if (after[i] >= n) return;
            const auto& slot = pairs_.at(ids[i], ids[after[i]]);
            ranks[i] = slot.rank < limit ? slot.rank : kNone, merged[i] = slot.merged;
        };
        for (std::size_t i = 0; i < n; ++i) after[i] = static_cast<u32>(i + 1), before[i] = static_cast<u32>(i) - 1;
        const auto offer = [&](std::size_t i) {
            look(i);
            if (ranks[i] == kNone) return;
            heap.push_back(u64{ranks[i]} << 32 | i);
            std::push_heap(heap.begin(), heap.end(), later);
        };
        for (std::size_t i = 0; i + 1 < n; ++i) {
            step();
            offer(i);
        }
        while (!heap.empty()) {
            step();
            std::pop_heap(heap.begin(), heap.end(), later);
            const u32 rank = static_cast<u32>(heap.back() >> 32), place = static_cast<u32>(heap.back());
            heap.pop_back();
            if (ranks[place] != rank) continue;
            const u32 second = after[place];
            ids[place] = merged[place];
            ids[second] = kNone;
            ranks[second] = kNone;
            after[place] = after[second];
            if (after[place] < n) before[after[place]] = place;
            offer(place);
            if (place > 0) offer(before[place]);
        }
        for (std::size_t i = 0; i < n; ++i)
            if (ids[i] != kNone) out.push_back(ids[i]);
    }
};

}  // namespace minigpt
