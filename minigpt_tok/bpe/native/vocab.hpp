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

#include "stop.hpp"
#include "text.hpp"

namespace minigpt {

constexpr u32 kNone = 0xFFFFFFFF;

// (left id, right id) -> (rank, merged id). Open addressing, linear probing, at most half full.
class PairTable {
   public:
    struct Slot {
        u64 pair;
        u32 rank, merged;
    };

    void reserve(std::size_t pairs) {
        std::size_t size = 16;
        while (size < pairs * 2) size *= 2;
        slots_.assign(size, Slot{kEmpty, kNone, kNone});
        shift_ = 64 - static_cast<unsigned>(std::countr_zero(size));
    }
    // Of a pair that stands twice the last rank counts, as in Hugging Face.
    void add(u32 left, u32 right, u32 rank, u32 merged) { find(key(left, right)) = {key(left, right), rank, merged}; }
    const Slot& at(u32 left, u32 right) const { return const_cast<PairTable*>(this)->find(key(left, right)); }
    static constexpr u64 kEmpty = ~u64{0};

   private:
    static u64 key(u32 left, u32 right) { return u64{left} << 32 | right; }
    Slot& find(u64 pair) {
        std::size_t i = (pair * 0x9E3779B97F4A7C15u ^ (pair >> 32) * 0xC2B2AE3D27D4EB4Fu) >> shift_;
        while (slots_[i].pair != pair && slots_[i].pair != kEmpty) i = (i + 1) & (slots_.size() - 1);
        return slots_[i];
    }
    std::vector<Slot> slots_;
    unsigned shift_ = 60;
};

class Vocab {
   public:
    static constexpr std::size_t kSmall = 40;  // units

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
        id_of_.reserve(tokens.size() * 2);
        for (std::size_t id = 0; id < tokens.size(); ++id) {
            if (!present[id]) continue;
            id_of_[bytes_of(static_cast<u32>(id))] = static_cast<u32>(id);  // of equal tokens the last, as in BPEModel
            if (!characters && tokens[id].size() == 1) byte_ids_[static_cast<u8>(tokens[id][0])] = static_cast<u32>(id);
        }
    }

    void set_character(u32 code_point, u32 id) { character_ids_[code_point] = id; }

    void merge_by_pair(const std::vector<u32>& lefts, const std::vector<u32>& rights, const std::vector<u32>& results) {
        pairs_.reserve(lefts.size());
        for (std::size_t rank = 0; rank < lefts.size(); ++rank)
            pairs_.add(lefts[rank], rights[rank], static_cast<u32>(rank), results[rank]);
        note_neighbours();
    }
    void merge_by_bytes() {
        // Halves are looked for only where both lengths occur, so that a very long token costs no quadratic time.
        std::vector<bool> lengths;
        for (const auto& [token, id] : id_of_) {
            if (token.size() >= lengths.size()) lengths.resize(token.size() + 1);
            lengths[token.size()] = true;
        }
        std::vector<std::array<u32, 3>> splits;
        for (const auto& [token, id] : id_of_)
            for (std::size_t cut = 1; cut < token.size(); ++cut) {
                if (!lengths[cut] || !lengths[token.size() - cut]) continue;
                const auto left = id_of_.find(token.substr(0, cut)), right = id_of_.find(token.substr(cut));
                if (left != id_of_.end() && right != id_of_.end()) splits.push_back({left->second, right->second, id});
            }
        pairs_.reserve(splits.size());
        for (const auto& [left, right, id] : splits) pairs_.add(left, right, id, id);
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
            if (const auto whole = id_of_.find(piece); whole != id_of_.end()) {
                ids.push_back(whole->second);
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
        if (units.size() <= kSmall) merge_small(units.data(), units.size(), ids);
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
        if (units.size() <= kSmall) merge_small(units.data(), units.size(), ids, limit);
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
    std::unordered_map<std::string_view, u32> id_of_;
    PairTable pairs_;
    std::vector<bool> neighbours_;
    std::vector<u64> character_neighbours_;

    void note_neighbours() {
        if (!characters_) neighbours_.assign(1 << 16, false);
        for (const auto& [token, id] : id_of_) {
            const u8* s = reinterpret_cast<const u8*>(token.data());
            const u8* end = s + token.size();
            if (characters_)
                for (const u8* next; (next = s + utf8_length(*s)) < end; s = next)
                    character_neighbours_.push_back(u64{decode_utf8(s)} << 32 | decode_utf8(next));
            else
                for (; s + 1 < end; ++s) neighbours_[s[0] << 8 | s[1]] = true;
        }
        std::sort(character_neighbours_.begin(), character_neighbours_.end());
        if (characters_) return;
        for (unsigned byte = 0; byte < 256; ++byte)
            if (byte_ids_[byte] == kNone)
                for (unsigned other = 0; other < 256; ++other) neighbours_[byte << 8 | other] = neighbours_[other << 8 | byte] = true;
    }

    // Only ranks below `limit` merge.
    void merge_small(u32* ids, std::size_t n, std::vector<u32>& out, u32 limit = kNone) const {
        u32 ranks[kSmall], merged[kSmall];  // of the pair that begins at each place
        const auto look = [&](std::size_t i) {
            const auto& slot = pairs_.at(ids[i], ids[i + 1]);
            ranks[i] = slot.rank < limit ? slot.rank : kNone, merged[i] = slot.merged;
        };
        for (std::size_t i = 0; i + 1 < n; ++i) look(i);
        while (n > 1) {
            std::size_t best = 0;
            for (std::size_t i = 1; i + 1 < n; ++i)
                if (ranks[i] < ranks[best]) best = i;
            if (ranks[best] == kNone) break;
            ids[best] = merged[best];
            --n;
            for (std::size_t i = best + 1; i < n; ++i) ids[i] = ids[i + 1];
            for (std::size_t i = best + 1; i + 1 < n; ++i) ranks[i] = ranks[i + 1], merged[i] = merged[i + 1];
            if (best + 1 < n) look(best);
            if (best > 0) look(best - 1);
        }
        out.insert(out.end(), ids, ids + n);
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
