// The pre-tokenizers: where the pieces of a text end, by the named patterns of pretokenize.py.
//
// A window of text is classified into bitmaps (bitmaps.hpp), then cut. `gpt2` is cut 64 bytes at a time by shifts of
// whole words: a boundary depends on the classes of two neighbours, and on one more character for white space. The
// other patterns are followed piece by piece, a run of a class ending at the first 0 of its bitmap. A piece counts only
// if the window shows all that decides its end; the rest of the window begins the next one.
#pragma once

#include "bitmaps.hpp"

#include <algorithm>
#include <string>

namespace minigpt {

enum class Pattern { none, gpt2, digits, cl100k, o200k, smollm };

struct PatternChoice {
    Pattern pattern = Pattern::none;
    unsigned digits = 0;  // numbers in a piece, for the patterns that count them
};

inline bool choose_pattern(const std::string& name, PatternChoice& choice) {
    if (name == "none") choice = {Pattern::none, 0};
    else if (name == "gpt2") choice = {Pattern::gpt2, 0};
    else if (name == "digits1") choice = {Pattern::digits, 1};
    else if (name == "digits2") choice = {Pattern::digits, 2};
    else if (name == "llama3") choice = {Pattern::digits, 3};
    else if (name == "cl100k") choice = {Pattern::cl100k, 3};
    else if (name == "o200k") choice = {Pattern::o200k, 3};
    else if (name == "smollm") choice = {Pattern::smollm, 1};
    else return false;
    return true;
}

// Cuts one window. `cut` is called with the text and writes the ends of pieces, relative to the window's start.
class Splitter {
   public:
    explicit Splitter(PatternChoice choice) : choice_(choice) {}

    PatternChoice choice() const { return choice_; }

    static constexpr std::size_t kLookahead = 8;  // bytes beyond a piece that may decide its end, runs apart

    // Piece ends in text[0, n), ascending, into `ends` (room for n). `last`: nothing follows, so the last end is n.
    // Otherwise only ends that what follows cannot change are given; text after the last of them is for the next window.
    std::size_t cut(const u8* s, std::size_t n, bool last, u32* ends) {
        if (n == 0) return 0;
        if (choice_.pattern == Pattern::none) {
            if (!last) return 0;
            ends[0] = static_cast<u32>(n);
            return 1;
        }
        maps_.fill(s, n, choice_.pattern == Pattern::o200k);
        if (choice_.pattern == Pattern::gpt2 && !maps_.wide_space) return cut_gpt2(s, n, last, ends);
        return cut_by_piece(s, n, last, ends);
    }

    // Whether the window that was cut last has a byte 0 (not known, so assumed, where there was nothing to cut).
    bool has_nul() const { return choice_.pattern == Pattern::none || maps_.nul; }

   private:
    PatternChoice choice_;
    Bitmaps maps_;
    std::vector<u64> bounds_;

    // ---- gpt2, a word of bitmap at a time -------------------------------------------------------------------------

    std::size_t cut_gpt2(const u8* s, std::size_t n, bool last, u32* ends) {
        const std::size_t words = (n + 63) / 64;
        if (bounds_.size() < words + 1) bounds_.resize(words + 1);
        bounds_[words] = 0;
        const u64 *L = maps_.letter.data(), *N = maps_.number.data(), *W = maps_.space.data(), *O = maps_.other.data(),
                  *B = maps_.blank.data(), *A = maps_.apostrophe.data();
        u64 l = 0, d = 0, w = 0, o = 0, b = 0;  // of the word before, for its last bit
        for (std::size_t i = 0; i < words; ++i) {
            // The class of the byte before each byte.
            const u64 pl = L[i] << 1 | l >> 63, pd = N[i] << 1 | d >> 63, pw = W[i] << 1 | w >> 63, po = O[i] << 1 | o >> 63,
                      pb = B[i] << 1 | b >> 63;
            const u64 exists = L[i] | N[i] | W[i] | O[i];
            const u64 full = L[i + 1] | N[i + 1] | O[i + 1];
            const u64 black = exists & ~W[i];  // not white space
            const u64 next_black = black >> 1 | full << 63;
            const u64 same = (L[i] & pl) | (N[i] & pd) | (O[i] & po);
            bounds_[i] = (black & ~pw & ~same)      // another class
                         | (W[i] & ~pw)             // white space after a word
                         | (black & pw & ~pb)       // a word after white space that is no blank: a blank leads the word
                         | (W[i] & pw & next_black);  // white space gives up its last character before a word
            l = L[i], d = N[i], w = W[i], o = O[i], b = B[i];
        }
        // Contractions begin at an apostrophe that begins a piece, and end two or three bytes later.
        for (std::size_t i = 0; i < words; ++i) {
            for (u64 starts = A[i] & bounds_[i]; starts; starts &= starts - 1) {
                const std::size_t p = i * 64 + static_cast<std::size_t>(std::countr_zero(starts));
                if (const unsigned length = contraction(s, p, n)) {
                    set_bound(p + 1, false);
                    if (p + length < n) set_bound(p + length, true);
                }
            }
        }
        bounds_[0] &= ~u64{1};
        const std::size_t limit = last ? n : n > kLookahead ? n - kLookahead : 0;
        std::size_t count = 0;
        for (std::size_t i = 0; i < words && i * 64 < limit; ++i) {
            const u32 base = static_cast<u32>(i * 64);
            for (u64 bits = bounds_[i]; bits; bits &= bits - 1)
                ends[count++] = base + static_cast<u32>(std::countr_zero(bits));
        }
        while (count && ends[count - 1] > limit) --count;
        if (last) ends[count++] = static_cast<u32>(n);
        return count;
    }

    void set_bound(std::size_t p, bool on) {
        const u64 mask = u64{1} << (p % 64);
        if (on) bounds_[p / 64] |= mask;
        else bounds_[p / 64] &= ~mask;
    }

    // Length of `'s`, `'t`, `'ll`, … at p, lower case only; 0 if there is none.
    static unsigned contraction(const u8* s, std::size_t p, std::size_t n) {
        if (p + 1 >= n) return 0;
        const u8 a = s[p + 1];
        if (a == 's' || a == 'd' || a == 'm' || a == 't') return 2;
        if (p + 2 >= n) return 0;
        const u8 b = s[p + 2];
        return (a == 'l' && b == 'l') || (a == 'v' && b == 'e') || (a == 'r' && b == 'e') ? 3 : 0;
    }

    // The same in any case, as Unicode folds: U+017F (C5 BF) is an s.
    static unsigned any_case_contraction(const u8* s, std::size_t p, std::size_t n) {
        if (p + 1 >= n) return 0;
        const u8 a = s[p + 1] | 0x20;
        if (a == 's' || a == 'd' || a == 'm' || a == 't') return 2;
        if (p + 2 >= n) return 0;
        if (s[p + 1] == 0xC5 && s[p + 2] == 0xBF) return 3;
        const u8 b = s[p + 2] | 0x20;
        return (a == 'l' && b == 'l') || (a == 'v' && b == 'e') || (a == 'r' && b == 'e') ? 3 : 0;
    }

    // ---- the others, piece by piece -------------------------------------------------------------------------------

    const u8* s_ = nullptr;
    std::size_t n_ = 0;
    std::size_t reach_ = 0;  // how far the present piece had to look

    std::size_t cut_by_piece(const u8* s, std::size_t n, bool last, u32* ends) {
        s_ = s, n_ = n;
        switch (choice_.pattern) {
            case Pattern::gpt2: return follow(last, ends, [this](std::size_t p) { return gpt2(p, false); });
            case Pattern::smollm: return follow(last, ends, [this](std::size_t p) { return gpt2(p, true); });
            case Pattern::o200k: return follow(last, ends, [this](std::size_t p) { return o200k(p); });
            case Pattern::cl100k: return follow(last, ends, [this](std::size_t p) { return digits(p, true); });
            default: return follow(last, ends, [this](std::size_t p) { return digits(p, false); });
        }
    }

    template <class PieceEnd>
    std::size_t follow(bool last, u32* ends, PieceEnd piece_end) {
        std::size_t count = 0;
        for (std::size_t p = 0; p < n_;) {
            reach_ = 0;
            const std::size_t end = piece_end(p);
            if (!last && std::max(end, reach_) + kLookahead > n_) break;
            ends[count++] = static_cast<u32>(end);
            p = end;
        }
        return count;
    }

    std::size_t run(const std::vector<u64>& map, std::size_t p) {
        const std::size_t end = run_end(map, p);
        if (end > reach_) reach_ = end;
        return end;
    }

    std::size_t next_char(std::size_t p) const { return p + utf8_length(s_[p]); }
    std::size_t char_before(std::size_t p) const {
        do --p;
        while (is_continuation(s_[p]));
        return p;
    }

    std::size_t gpt2(std::size_t p, bool digits_apart) {
        if (digits_apart && bit(maps_.number, p)) return next_char(p);
        if (s_[p] == '\'')
            if (const unsigned length = contraction(s_, p, n_)) return p + length;
        const std::size_t q = s_[p] == ' ' && p + 1 < n_ ? p + 1 : p;
        if (bit(maps_.letter, q)) return run(maps_.letter, q);
        if (bit(maps_.other, q)) return run(maps_.other, q);
        if (!digits_apart && bit(maps_.number, q)) return run(maps_.number, q);
        return white_space(p, digits_apart);
    }

    // `\s+(?!\S)|\s+`; where numbers stand apart, one of them ends the text for the look-ahead.
    std::size_t white_space(std::size_t p, bool digits_apart = false) {
        const std::size_t end = run(maps_.space, p);
        if (end == n_ || (digits_apart && bit(maps_.number, end))) return end;
        const std::size_t last_char = char_before(end);
        return last_char > p ? last_char : end;
    }

    // Where the last line end of the white space at p ends, or 0.
    std::size_t after_last_newline(std::size_t p) {
        const std::size_t end = run(maps_.space, p);
        for (std::size_t q = end; q > p; --q)
            if (s_[q - 1] == '\n' || s_[q - 1] == '\r') return q;
        return 0;
    }

    std::size_t numbers(std::size_t p) {
        for (unsigned k = 0; k < choice_.digits && p < n_ && bit(maps_.number, p); ++k) p = next_char(p);
        return p;
    }

    // ` ?[^\s\p{L}\p{N}]+[\r\n]*`, or with a slash among the last; 0 if it does not fit at p.
    std::size_t others(std::size_t p, bool slash) {
        const std::size_t q = s_[p] == ' ' && p + 1 < n_ ? p + 1 : p;
        if (!bit(maps_.other, q)) return 0;
        std::size_t end = run(maps_.other, q);
        while (end < n_ && (s_[end] == '\n' || s_[end] == '\r' || (slash && s_[end] == '/'))) ++end;
        if (end > reach_) reach_ = end;
        return end;
    }

    bool newline(std::size_t p) const { return s_[p] == '\n' || s_[p] == '\r'; }

    std::size_t digits(std::size_t p, bool cl100k) {
        if (bit(maps_.letter, p)) return run(maps_.letter, p);
        if (bit(maps_.number, p)) return numbers(p);
        if (s_[p] == '\'')
            if (const unsigned length = any_case_contraction(s_, p, n_)) return p + length;
        if (!newline(p))
            if (const std::size_t q = next_char(p); q < n_ && bit(maps_.letter, q)) return run(maps_.letter, q);
        if (const std::size_t end = others(p, false)) return end;
        if (cl100k && run(maps_.space, p) == n_) return n_;
        if (const std::size_t end = after_last_newline(p)) return end;
        return white_space(p);
    }

    std::size_t o200k(std::size_t p) {
        if (bit(maps_.number, p)) return numbers(p);
        const bool letter = bit(maps_.letter, p);
        if (!letter && !newline(p))
            if (const std::size_t q = next_char(p); q < n_)
                if (const std::size_t end = small_word(q)) return end;
        if (const std::size_t end = small_word(p)) return end;
        if (!letter && !newline(p))
            if (const std::size_t q = next_char(p); q < n_)
                if (const std::size_t end = capital_word(q)) return end;
        if (const std::size_t end = capital_word(p)) return end;
        if (const std::size_t end = others(p, true)) return end;
        if (const std::size_t end = after_last_newline(p)) return end;
        return white_space(p);
    }

    // `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` and a contraction; 0 if it does not fit at p.
    std::size_t small_word(std::size_t p) {
        const std::size_t capitals = run(maps_.not_small, p);
        std::size_t end = run(maps_.not_capital, capitals);
        if (end == capitals) {
            // Give characters back until one is in both classes; what follows it is not in the second, so it ends there.
            std::size_t q = capitals;
            while (q > p && !bit(maps_.not_capital, q - 1)) --q;
            if (q == p) return 0;
            end = q;
        }
        return with_contraction(end);
    }

    std::size_t capital_word(std::size_t p) {
        const std::size_t capitals = run(maps_.not_small, p);
        return capitals == p ? 0 : with_contraction(run(maps_.not_capital, capitals));
    }

    std::size_t with_contraction(std::size_t end) const {
        return end < n_ && s_[end] == '\'' ? end + any_case_contraction(s_, end, n_) : end;
    }
};

}  // namespace minigpt
