// From text to ids: windows of text, cut into pieces, looked up, merged where they are new.
//
// Text comes as UTF-8 in memory, or as the characters of a Python string, which are turned into UTF-8 a window at a time: the
// window stays in the processor's cache and no second copy of the text is made.
#pragma once

#include "cache.hpp"
#include "split.hpp"
#include "stop.hpp"
#include "vocab.hpp"

namespace minigpt {

// A text that cannot be encoded: Python finds out what is wrong with it and says so.
struct BadText {};

// What one thread needs to encode: its caches and scratch space. Results never depend on what it has seen before.
template <class Id>
class Worker {
   public:
    Worker(const Vocab& vocab, PatternChoice pattern, bool whole_piece)
        : vocab_(vocab), splitter_(pattern), whole_piece_(whole_piece) {}

    // While it lives, `go_on` is asked within long pieces too, which throw Stopped at a no.
    class Asking {
       public:
        Asking(Worker& worker, const GoOn& go_on) : worker_(worker) { worker_.asked_ = &go_on; }
        ~Asking() { worker_.asked_ = nullptr; }
        Asking(const Asking&) = delete;

       private:
        Worker& worker_;
    };

    // Gives back what only a very long piece has needed. The caches stay.
    void trim() {
        std::erase_if(spare_, [](const Ids<Id>& one) { return one.room() > kKept; });
        if (spare_.size() > kSpare) spare_.erase(spare_.begin() + kSpare, spare_.end());
        if (buffer_.size() + ends_.size() <= kKept) return;
        for (auto* one : {&ends_, &ids_, &units_}) std::vector<u32>().swap(*one);
        std::vector<u8>().swap(buffer_);
        splitter_ = Splitter(splitter_.choice());
    }

    static constexpr std::size_t kKept = std::size_t{1} << 20;
    static constexpr unsigned kSpare = 4;
    static constexpr std::size_t kWindow = 16 << 10;  // bytes
    static constexpr std::size_t kRoom = 64;          // bytes behind a window that may be read, and mean nothing

    // Arrays for ids that are to go elsewhere.
    std::vector<Ids<Id>>& spare() { return spare_; }

    // Valid UTF-8. `go_on` is asked now and then; false stops early.
    template <class Out, class GoOn>
    void encode_utf8(const u8* s, std::size_t n, Out& out, GoOn go_on) {
        out.expect_text(n);
        std::size_t window = kWindow;
        for (std::size_t at = 0; at < n;) {
            std::size_t size = std::min(window, n - at);
            check_size(size);
            const bool last = at + size == n;
            const u8* from = s + at;
            if (last) {  // nothing may be read behind the text, so its end is copied to where there is room
                if (buffer_.size() < size + kRoom) buffer_.resize(size + kRoom);
                std::memcpy(buffer_.data(), from, size);
                from = buffer_.data();
            } else {
                while (is_continuation(s[at + size])) --size;
            }
            const std::size_t done = encode_window(from, size, last, out);
            window = done ? kWindow : window * 2;  // a piece longer than the window: look at more
            at += done;
            if (!go_on()) return;
        }
    }

    // The code points of a Python string, 1, 2 or 4 bytes each.
    template <class Char, class Out, class GoOn>
    void encode_characters(const Char* s, std::size_t n, Out& out, GoOn go_on) {
        out.expect_text(n);
        std::size_t held = 0;  // bytes in the buffer that belong to no piece yet
        std::size_t take = kWindow;
        for (std::size_t at = 0; at < n;) {
            take = std::min(std::max(take, held / 4), n - at);
            if (buffer_.size() < held + take * 4 + kRoom) buffer_.resize(held + take * 4 + kRoom);
            u8* const end = to_utf8(s + at, take, buffer_.data() + held);
            at += take;
            const std::size_t size = static_cast<std::size_t>(end - buffer_.data());
            const std::size_t done = encode_window(buffer_.data(), size, at == n, out);
            held = size - done;
            std::memmove(buffer_.data(), buffer_.data() + done, held);
            take = done ? kWindow : take * 2;
            if (!go_on()) return;
        }
    }

    // Several short texts, side by side in the buffer, so that their pieces are looked up together: a stride of pieces is as good
    // as it is full. Each text is cut by itself, and a piece of no length stands for its end.
    class Group {
       public:
        explicit Group(Worker& worker) : worker_(worker) {}

        // Valid UTF-8.
        void add(const u8* s, std::size_t n) {
            std::copy_n(s, n, room(n));
            cut(n);
        }
        template <class Char>
        void add_characters(const Char* s, std::size_t n) {
            u8* const start = room(n * 4);
            cut(static_cast<std::size_t>(to_utf8(s, n, start) - start));
        }
        // Calls `ended` after the ids of each text; it may add one more.
        template <class Ended>
        void encode(Ids<Id>& out, const Ended& ended) {
            out.reserve_more(bytes_ + texts_);
            worker_.encode_pieces(worker_.buffer_.data(), worker_.ends_.data() + 1, pieces_, has_nul_, out, ended);
        }

       private:
        Worker& worker_;
        std::size_t bytes_ = 0, pieces_ = 0, texts_ = 0;
        bool has_nul_ = false;

        u8* room(std::size_t n) {
            if (worker_.buffer_.size() < bytes_ + n + kRoom) worker_.buffer_.resize(bytes_ + n + kRoom);
            return worker_.buffer_.data() + bytes_;
        }
        void cut(std::size_t n) {
            auto& all = worker_.ends_;
            if (all.size() < pieces_ + n + 2 + kPlacesRoom) all.resize(pieces_ + n + 2 + kPlacesRoom);
            all[0] = 0;
            u32* const ends = all.data() + 1 + pieces_;
            const std::size_t count = worker_.splitter_.cut(worker_.buffer_.data() + bytes_, n, true, ends);
            for (std::size_t i = 0; i < count; ++i) ends[i] += static_cast<u32>(bytes_);
            bytes_ += n;
            ends[count] = static_cast<u32>(bytes_);
            pieces_ += count + 1, ++texts_;
            has_nul_ = has_nul_ || (n && worker_.splitter_.has_nul());
        }
    };

   private:
    const Vocab& vocab_;
    Splitter splitter_;
    bool whole_piece_;
    LineTable<u64> short_;                   // pieces of up to 8 bytes
    LineTable<std::array<u64, 2>> middle_;  // of 9 to 16
    LineTable<std::array<u64, 4>> wide_;    // of 17 to 32
    Ids<Id> elsewhere_;                      // of those, the ids that are too many for a line
    LongCache<Id> long_;
    std::vector<u32> ends_, ids_, units_;
    std::vector<u8> buffer_;
    std::vector<Ids<Id>> spare_;
    const GoOn* asked_ = nullptr;

    static constexpr std::size_t kLongPiece = 256;  // bytes; a longer one is cut where no token reaches across

    // Places in a window have 32 bits; a window is longer than kWindow only where a piece is.
    static void check_size(std::size_t n) {
        if (n > 0xFFFFFF00) throw std::overflow_error("a piece of the text is longer than 4 GiB, the most that can be merged");
    }

    // Encodes the pieces that a window decides, and gives the end of the last of them. `s` has room for 16 bytes more.
    template <class Out>
    std::size_t encode_window(const u8* s, std::size_t n, bool last, Out& out) {
        check_size(n);
        const std::size_t room = (splitter_.choice().pattern == Pattern::none ? 1 : n) + 1 + kPlacesRoom;
        if (ends_.size() < room) ends_.resize(room);
        ends_[0] = 0;
        u32* const ends = ends_.data() + 1;  // so that a piece begins at ends[i - 1]
        const std::size_t count = splitter_.cut(s, n, last, ends);
        out.reserve_more(n);
        encode_pieces(s, ends, count, splitter_.has_nul(), out, [] {});
        return ends_[count];
    }

    // Pieces end to end; `ended` is called for those of no length.
    template <class Out, class Ended>
    void encode_pieces(const u8* s, const u32* ends, std::size_t count, bool one_by_one, Out& out, const Ended& ended) {
        if (!one_by_one) {
            for (std::size_t i = 0; i < count; i += kStride) encode_stride(s, ends + i, std::min(kStride, count - i), out, ended);
            return;
        }
        for (std::size_t i = 0; i < count; ++i) ends[i] > ends[i - 1] ? piece(s + ends[i - 1], ends[i] - ends[i - 1], out) : ended();
    }

    // Some pieces at a time, in passes without a branch that could be guessed wrong: keys, and where they will be looked for,
    // so that those lines are on their way from memory; what is there; and the ids in order. What is new is learned last.
    static constexpr std::size_t kStride = 128;

    template <class Out, class Ended>
    void encode_stride(const u8* s, const u32* ends, std::size_t count, Out& out, const Ended& ended) {
        if (elsewhere_.size() > kMostElsewhere) forget();
        u64 keys[kStride], values[kStride];
        u32 lines[kStride];
        u16 shorts[kStride], longer[kStride], middles[kStride], wides[kStride];
        std::size_t short_count = 0, longer_count = 0, middle_count = 0, wide_count = 0;
        const auto start_of = [=](std::size_t k) { return s + ends[k - 1]; };  // NOLINT: ends[-1] is the start of the first
        const auto length_of = [=](std::size_t k) { return std::size_t{ends[k] - ends[k - 1]}; };
        for (std::size_t k = 0; k < count; ++k) {
            const std::size_t length = length_of(k);
            keys[k] = first_bytes(start_of(k), length);
            const std::size_t line = short_.line(keys[k]);
            lines[k] = static_cast<u32>(line);
            short_.prefetch(line);
            shorts[short_count] = longer[longer_count] = static_cast<u16>(k);
            short_count += length - 1 < 8;
            longer_count += length - 1 >= 8;  // or nothing, where a text ends
        }
        for (std::size_t i = 0; i < longer_count; ++i) {
            const std::size_t k = longer[i], length = length_of(k);
            values[k] = kUnknown;
            middles[middle_count] = wides[wide_count] = static_cast<u16>(k);
            middle_count += length - 9 < 8;
            wide_count += length - 17 < 16;
        }
        for (std::size_t i = 0; i < middle_count; ++i) {
            const std::size_t k = middles[i];
            lines[k] = static_cast<u32>(middle_.line(two_words(start_of(k), length_of(k))));
            middle_.prefetch(lines[k]);
        }
        for (std::size_t i = 0; i < wide_count; ++i) {
            const std::size_t k = wides[i];
            lines[k] = static_cast<u32>(wide_.line(four_words(start_of(k), length_of(k))));
            wide_.prefetch(lines[k]);
        }
        for (std::size_t i = 0; i < short_count; ++i) values[shorts[i]] = short_.find(keys[shorts[i]], lines[shorts[i]]);
        for (std::size_t i = 0; i < middle_count; ++i) {
            const std::size_t k = middles[i];
            values[k] = middle_.find(two_words(start_of(k), length_of(k)), lines[k]);
        }
        for (std::size_t i = 0; i < wide_count; ++i) {
            const std::size_t k = wides[i];
            values[k] = wide_.find(four_words(start_of(k), length_of(k)), lines[k]);
        }
        write(values, count, out, [&](std::size_t k) { length_of(k) ? piece(start_of(k), length_of(k), out) : ended(); });
    }

    // What was found, in order; `unknown` does the rest.
    template <class Unknown>
    void write(const u64* values, std::size_t count, Ids<Id>& out, const Unknown& unknown) {
        Id* to = out.end();
        for (std::size_t k = 0; k < count; ++k) {
            const u64 value = values[k];
            if (value < kElsewhere) [[likely]] {
                Packed<Id>::store(value, to);
                to += value >> Packed<Id>::kCountShift;
            } else if (value != kUnknown) {
                const Id* from = elsewhere_.data() + place_of(value);
                const std::size_t ids = count_elsewhere(value);
                for (std::size_t i = 0; i < ids; i += 8) std::memcpy(to + i, from + i, 8 * sizeof(Id));
                to += ids;
            } else {
                out.advance(static_cast<std::size_t>(to - out.end()));
                unknown(k);
                to = out.end();
            }
        }
        out.advance(static_cast<std::size_t>(to - out.end()));
    }
    template <class Unknown>
    void write(const u64* values, std::size_t count, Tally& out, const Unknown& unknown) {
        std::size_t ids = 0;
        for (std::size_t k = 0; k < count; ++k) {
            const u64 value = values[k];
            if (value < kElsewhere) [[likely]] ids += value >> Packed<Id>::kCountShift;
            else if (value != kUnknown) ids += count_elsewhere(value);
            else unknown(k);
        }
        out.advance(ids);
    }

    // The first bytes of a piece in a word, at most 8, the rest zero. (Of a piece of 32 bytes or more, anything.)
    static u64 first_bytes(const u8* s, std::size_t n) {
        u64 word;
        std::memcpy(&word, s, 8);
#ifdef __BMI2__
        return _bzhi_u64(word, static_cast<unsigned>(n * 8));
#endif
        return n >= 8 ? word : word & ~(~u64{0} << (n * 8));
    }
    static std::array<u64, 2> two_words(const u8* s, std::size_t n) {  // of 9 to 16 bytes
        return {first_bytes(s, 8), first_bytes(s + 8, n - 8)};
    }
    static std::array<u64, 4> four_words(const u8* s, std::size_t n) {  // of 17 to 32 bytes
        return {first_bytes(s, 8), first_bytes(s + 8, 8), first_bytes(s + 16, n - 16), n > 24 ? first_bytes(s + 24, n - 24) : 0};
    }

    // A piece that the tables did not have a moment ago, or any other. `s` has room for 16 bytes more.
    template <class Out>
    void piece(const u8* s, std::size_t n, Out& out) {
        // A part of a piece is no piece: where whole pieces are looked up, a long one stays whole.
        if (n > kLongPiece) return whole_piece_ ? merge(s, n, out) : parts(s, n, out);
        if (n > 32) return long_piece(s, n, out);
        if (std::memchr(s, 0, n)) return merge(s, n, out);
        if (n <= 8) find_or_learn(short_, first_bytes(s, n), s, n, out);
        else if (n <= 16) find_or_learn(middle_, two_words(s, n), s, n, out);
        else find_or_learn(wide_, four_words(s, n), s, n, out);
    }

    template <class Key, class Out>
    void find_or_learn(LineTable<Key>& table, const Key& key, const u8* s, std::size_t n, Out& out) {
        u64 value = table.find(key, table.line(key));
        if (value != kUnknown) return write(&value, 1, out, [](std::size_t) {});
        merge(s, n, out);
        if (!Packed<Id>::pack(ids_.data(), ids_.size(), value)) {
            value = elsewhere(elsewhere_.size(), ids_.size());
            elsewhere_.append(ids_.data(), ids_.size());
        }
        table.insert(key, value);
    }

    static constexpr std::size_t kMostElsewhere = (std::size_t{8} << 20) / sizeof(Id);
    void forget() {
        short_ = {}, middle_ = {}, wide_ = {};
        elsewhere_ = Ids<Id>();
    }

    template <class Out>
    void long_piece(const u8* s, std::size_t n, Out& out) {
        const std::string_view text(reinterpret_cast<const char*>(s), n);
        const u64 hash = hash_text(text);
        typename LongCache<Id>::Found found;
        if (long_.find(text, hash, found)) return out.append(found.ids, found.count);
        merge(s, n, out);
        long_.insert(text, hash, ids_.data(), ids_.size());
    }

    template <class Out>
    void merge(const u8* s, std::size_t n, Out& out) {
        ids_.clear();
        if (!vocab_.encode({reinterpret_cast<const char*>(s), n}, ids_, units_, asked_)) throw BadText();
        out.append(ids_.data(), ids_.size());
    }

    // A long piece, cut where no token reaches across.
    template <class Out>
    void parts(const u8* s, std::size_t n, Out& out) {
        std::size_t start = 0, parts = 0;
        for (std::size_t at = 0; at < n;) {
            const std::size_t next = at + (vocab_.characters() ? utf8_length(s[at]) : 1);
            if (next >= n || !vocab_.may_join(s + at, s + next)) {
                const std::size_t size = next - start;
                size > kLongPiece ? merge(s + start, size, out) : piece(s + start, size, out);
                start = next;
                if (++parts % 1024 == 0) ask(asked_);
            }
            at = next;
        }
    }

    // Code points to UTF-8, sixteen at a time where most are ASCII. The others without a branch on how many bytes they take: in most
    // languages that changes with every word. Sixteen or four bytes are written each time, and kRoom is behind the last.
    template <class Char>
    static u8* to_utf8(const Char* s, std::size_t n, u8* out) {
        constexpr int kFew = 3;
        u32 surrogates = 0;
        const auto one = [&](const u32 c) {
            const u32 two = 0x80C0 | c >> 6 | (c & 0x3F) << 8;
            const u32 three = 0x8080E0 | c >> 12 | (c >> 6 & 0x3F) << 8 | (c & 0x3F) << 16;
            const u32 four = 0x808080F0 | c >> 18 | (c >> 12 & 0x3F) << 8 | (c >> 6 & 0x3F) << 16 | (c & 0x3F) << 24;
            const u32 from_two = c >= 0x80, from_three = c >= 0x800, from_four = c >= 0x10000;
            u32 bytes = c ^ ((c ^ two) & (0 - from_two));
            if constexpr (sizeof(Char) > 1) bytes ^= (two ^ three) & (0 - from_three);
            if constexpr (sizeof(Char) > 2) bytes ^= (three ^ four) & (0 - from_four);
            std::memcpy(out, &bytes, 4);
            out += 1 + from_two + from_three + from_four;
            surrogates |= c - 0xD800 < 0x800;
        };
        for (std::size_t i = 0; i < n;) {
            for (bool few = true; few && i + 16 <= n;) {
                const u32 others = store_ascii(s + i, out);
                const unsigned ascii = others ? std::countr_zero(others) : 16;
                i += ascii, out += ascii;
                few = std::popcount(others) <= kFew;
                if (others && few) one(s[i++]);
            }
            for (const std::size_t stop = std::min(n, i + 16); i < stop; ++i) one(s[i]);
        }
        if (surrogates) throw BadText();
        return out;
    }

    // Writes sixteen characters as if all were ASCII, and says which are not, the first as the lowest bit.
#ifdef __SSE2__
    static u32 store_ascii(const u8* s, u8* out) {
        const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(s));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out), all);
        return static_cast<u32>(_mm_movemask_epi8(all));
    }
    static u32 store_ascii(const u16* s, u8* out) {
        const auto* from = reinterpret_cast<const __m128i*>(s);
        const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1), high = _mm_set1_epi16(static_cast<short>(0xFF80));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_packus_epi16(a, b));
        const auto is_ascii = [&](__m128i characters) { return _mm_cmpeq_epi16(_mm_and_si128(characters, high), _mm_setzero_si128()); };
        return static_cast<u32>(_mm_movemask_epi8(_mm_packs_epi16(is_ascii(a), is_ascii(b)))) ^ 0xFFFF;
    }
    static u32 store_ascii(const u32* s, u8* out) {
        __m128i four[4], ascii[4];
        for (unsigned k = 0; k < 4; ++k) {
            four[k] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(s) + k);
            ascii[k] = _mm_cmpeq_epi32(_mm_and_si128(four[k], _mm_set1_epi32(~0x7F)), _mm_setzero_si128());
        }
        const __m128i bytes = _mm_packus_epi16(_mm_packs_epi32(four[0], four[1]), _mm_packs_epi32(four[2], four[3]));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
        const __m128i is_ascii = _mm_packs_epi16(_mm_packs_epi32(ascii[0], ascii[1]), _mm_packs_epi32(ascii[2], ascii[3]));
        return static_cast<u32>(_mm_movemask_epi8(is_ascii)) ^ 0xFFFF;
    }
#else
    template <class Char>
    static u32 store_ascii(const Char*, u8*) {
        return 0xFFFF;
    }
#endif
};

}  // namespace minigpt
