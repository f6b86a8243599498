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

    static constexpr std::size_t kLookahead = 16;  // bytes beyond a piece that may decide its end, runs apart, or be read

    // Piece ends in text[0, n), ascending, into `ends` (room for n + kPlacesRoom). `last`: nothing follows, so the last end is n.
    // Otherwise only ends that what follows cannot change are given; text after the last of them is for the next window.
    std::size_t cut(const u8* s, std::size_t n, bool last, u32* ends) {
        if (n == 0) return 0;
        if (choice_.pattern == Pattern::none) {
            if (!last) return 0;
            ends[0] = static_cast<u32>(n);
            return 1;
        }
        maps_.fill(s, n, choice_.pattern == Pattern::o200k);
        if (choice_.pattern == Pattern::gpt2) return cut_gpt2(s, n, last, ends);
        if (choice_.pattern == Pattern::digits || choice_.pattern == Pattern::cl100k) return cut_digits(s, n, last, ends);
        return cut_by_piece(s, n, last, ends);
    }

    // Whether the window that was cut last has a byte 0 (not known, so assumed, where there was nothing to cut).
    bool has_nul() const { return choice_.pattern == Pattern::none || maps_.nul; }

   private:
    PatternChoice choice_;
    Bitmaps maps_;
    std::vector<u64> bounds_;

    // ---- a word of bitmap at a time -------------------------------------------------------------------------------

    // A bitmap word by word: the word, and the bits of the byte before each byte.
    struct Walk {
        const u64* word;
        u64 now = 0, before = 0;
        explicit Walk(const std::vector<u64>& map) : word(map.data()) {}
        void step(std::size_t i) {
            const u64 last = now;
            now = word[i];
            before = now << 1 | last >> 63;
        }
    };

    std::size_t cut_gpt2(const u8* s, std::size_t n, bool last, u32* ends) {
        const std::size_t words = begin_bounds(n);
        Walk l(maps_.letter), d(maps_.number), w(maps_.space), o(maps_.other), b(maps_.blank);
        for (std::size_t i = 0; i < words; ++i) {
            for (Walk* walk : {&l, &d, &w, &o, &b}) walk->step(i);
            const u64 black = l.now | d.now | o.now;  // no white space
            const u64 next_black = black >> 1 | (l.word[i + 1] | d.word[i + 1] | o.word[i + 1]) << 63;
            const u64 same = (l.now & l.before) | (d.now & d.before) | (o.now & o.before);
            bounds_[i] = (black & ~w.before & ~same)           // another class
                         | (w.now & ~w.before)                 // white space after a word
                         | (black & w.before & ~b.before)      // a word after white space that is no blank: a blank leads it
                         | (w.now & w.before & next_black);    // white space gives up its last character before a word
        }
        if (maps_.wide_space) give_up_whole_characters(words);
        // Contractions begin at an apostrophe that begins a piece, and end two or three bytes later.
        for (std::size_t i = 0; i < words; ++i) {
            for (u64 starts = maps_.apostrophe[i] & bounds_[i]; starts; starts &= starts - 1) {
                const std::size_t p = i * 64 + static_cast<std::size_t>(std::countr_zero(starts));
                if (const unsigned length = contraction(s, p, n)) {
                    set_bound(p + 1, false);
                    if (p + length < n) set_bound(p + length, true);
                }
            }
        }
        return collect(words, n, last ? n : decided(n), last, ends);
    }

    // cl100k, and those that differ from it in how many numbers make a piece, and in white space at the end of a text.
    std::size_t cut_digits(const u8* s, std::size_t n, bool last, u32* ends) {
        const std::size_t words = begin_bounds(n);
        Walk l(maps_.letter), d(maps_.number), w(maps_.space), o(maps_.other), b(maps_.blank), nl(maps_.newline),
            c(maps_.continuation);
        u64 lone = 0;  // first characters of runs of others, where no blank goes before
        u64 numbers = 0;
        for (std::size_t i = 0; i < words; ++i) {
            for (Walk* walk : {&l, &d, &w, &o, &b, &nl, &c}) walk->step(i);
            const u64 black = l.now | d.now | o.now;
            const u64 next_black = black >> 1 | (l.word[i + 1] | d.word[i + 1] | o.word[i + 1]) << 63;
            const u64 carried = lone >> 63;
            lone = o.now & ~o.before & ~b.before;
            if (c.now)
                for (int byte = 1; byte < 4; ++byte) lone |= (lone << 1 | carried) & c.now & o.now;
            const u64 led = l.now & (lone << 1 | carried);  // letters that such a character, being alone, leads
            const u64 tab = w.now & ~nl.now, tab_before = w.before & ~nl.before;  // white space that ends no line
            u64 bounds = (d.now & (l.before | o.before | tab_before)) | (l.now & d.before) | (l.now & o.before & ~led) |
                         (o.now & (l.before | d.before | (tab_before & ~b.before)))  // a blank leads others, a tab does not
                         | (black & nl.before)
                         | (w.now & ~w.before & ~(nl.now & o.before))  // line ends belong to the others before them
                         | (tab & nl.before)                           // after a line's end, if it is the last: see below
                         | (tab & next_black);                         // white space gives up its last character
            if (choice_.digits == 1) bounds |= d.now & ~c.now;
            bounds_[i] = bounds;
            join_lines(i, nl.now & tab_before);
            numbers |= d.now & d.before;
        }
        if (maps_.wide_space) give_up_whole_characters(words);
        if (choice_.digits > 1 && numbers) cut_numbers(words);
        bounds_[0] |= 1;
        for (std::size_t i = 0; i < words; ++i) {
            for (u64 starts = maps_.apostrophe[i] & bounds_[i]; starts; starts &= starts - 1) {
                const std::size_t p = i * 64 + static_cast<std::size_t>(std::countr_zero(starts));
                if (const unsigned length = any_case_contraction(s, p, n); length && p + length < n) set_bound(p + length, true);
            }
        }
        // White space at the end is not decided, or has rules of its own.
        std::size_t end = n;
        while (end && bit(maps_.space, end - 1)) --end;
        if (!last) return collect(words, n, std::min(decided(n), end), false, ends);
        std::size_t count = collect(words, n, end, false, ends);
        s_ = s, n_ = n;
        for (std::size_t p = count ? ends[count - 1] : 0; p < n; p = ends[count - 1])
            ends[count++] = static_cast<u32>(digits(p, choice_.pattern == Pattern::cl100k));
        return count;
    }

    std::size_t begin_bounds(std::size_t n) {
        const std::size_t words = (n + 63) / 64;
        if (bounds_.size() < words + 1) bounds_.resize(words + 1);
        bounds_[words] = 0;
        return words;
    }

    // How far bounds depend on nothing behind the window (runs of white space apart).
    static std::size_t decided(std::size_t n) { return n > kLookahead ? n - kLookahead : 0; }

    // The bounds up to `limit`, and the text's end where it is the last of them.
    std::size_t collect(std::size_t words, std::size_t n, std::size_t limit, bool with_end, u32* ends) {
        bounds_[0] &= ~u64{1};
        std::size_t count = 0;
        for (std::size_t i = 0; i < words && i * 64 <= limit; ++i)
            count += write_places(bounds_[i], static_cast<u32>(i * 64), ends + count);
        while (count && ends[count - 1] > limit) --count;
        if (with_end) ends[count++] = static_cast<u32>(n);
        return count;
    }

    // Bounds were set at the last byte of white space; they belong at the start of its last character.
    void give_up_whole_characters(std::size_t words) {
        for (std::size_t i = 0; i < words; ++i)
            for (u64 wrong = bounds_[i] & maps_.continuation[i]; wrong; wrong &= wrong - 1) {
                std::size_t p = i * 64 + static_cast<std::size_t>(std::countr_zero(wrong));
                set_bound(p, false);
                do --p;
                while (bit(maps_.continuation, p));
                set_bound(p, true);
            }
    }

    // Runs of numbers have a bound after every few of them.
    void cut_numbers(std::size_t words) {
        const unsigned most = choice_.digits;
        u64 before = 0, found_before = 0;
        for (std::size_t i = 0; i < words; ++i) {
            const u64 now = maps_.number[i];
            u64 found = now;  // bytes with at least `most` bytes of numbers right before them
            for (unsigned k = 1; k <= most; ++k) found &= now << k | before >> (64 - k);
            for (u64 starts = found & ~(found << 1 | found_before >> 63); starts; starts &= starts - 1) {
                std::size_t p = i * 64 + static_cast<std::size_t>(std::countr_zero(starts)) - most;
                const std::size_t end = run_end(maps_.number, p);
                for (unsigned k = 0; p < end; ++k) {
                    if (k && k % most == 0) set_bound(p, true);
                    do ++p;
                    while (bit(maps_.continuation, p));
                }
            }
            before = now, found_before = found;
        }
    }

    // White space up to its last line end is one piece: the bound after an earlier one goes, unless that line end belongs to
    // the others before it. `ends` has the line ends of a word that come after other white space.
    void join_lines(std::size_t word, u64 ends) {
        for (; ends; ends &= ends - 1) {
            std::size_t p = word * 64 + static_cast<std::size_t>(std::countr_zero(ends));
            while (p && bit(maps_.space, p - 1) && !bit(maps_.newline, p - 1)) --p;
            std::size_t q = p;
            while (q && bit(maps_.newline, q - 1)) --q;
            if (q < p && !(q && bit(maps_.other, q - 1))) set_bound(p, false);
        }
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
