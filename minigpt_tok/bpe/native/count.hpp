// Counting pieces: how often each distinct piece occurs, and in which order they were first seen.
//
// A piece of up to 15 bytes is its own key, with its length in the sixteenth byte; longer ones have their text in an arena. A
// table belongs to one thread; tables of several threads are joined afterwards, exactly, since every entry knows where in the
// text it was first seen. Memory: 32 bytes for each slot, at most two thirds of them in use.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

#include "cache.hpp"
#include "split.hpp"
#include "stop.hpp"

namespace minigpt {

// A distinct piece with its count; `first` orders pieces by where they were first seen.
struct Counted {
    std::string_view piece;
    std::int64_t count;
    u64 first;
};

// What of two words belongs to a piece of each length up to 15.
struct KeyMasks {
    u64 low[16], high[16];
    constexpr KeyMasks() : low(), high() {
        for (unsigned n = 0; n < 16; ++n) {
            low[n] = n >= 8 ? ~u64{0} : (u64{1} << (n * 8)) - 1;
            high[n] = n > 8 ? (u64{1} << ((n - 8) * 8)) - 1 : 0;
        }
    }
};
inline constexpr KeyMasks kMasks;

// Sorts, and asks meanwhile whether to go on.
template <class Less>
void sort(std::vector<Counted>& pieces, const Less& less, const GoOn* go_on) {
    std::size_t steps = 0;
    std::sort(pieces.begin(), pieces.end(), [&](const Counted& a, const Counted& b) {
        if (++steps % 65536 == 0) ask(go_on);
        return less(a, b);
    });
}

class PieceTable {
   public:
    PieceTable() : slots_(kFewest) {}

    // Counts pieces that lie end to end in `s`, which has room for 16 bytes more; the first is number `first` of the text.
    void add(const u8* s, const u32* ends, std::size_t count, u64 first) {
        constexpr std::size_t kStride = 64;
        u64 lows[kStride], highs[kStride];
        for (std::size_t i = 0; i < count; i += kStride) {
            const std::size_t here = std::min(kStride, count - i);
            if ((used_ + here) * 3 > slots_.size() * 2) grow();
            std::size_t from = i ? ends[i - 1] : 0;
            for (std::size_t k = 0; k < here; ++k) {
                const std::size_t length = ends[i + k] - from;
                short_key(s + from, length, lows[k], highs[k]);
                __builtin_prefetch(&slots_[home(lows[k], highs[k])]);
                from = ends[i + k];
            }
            from = i ? ends[i - 1] : 0;
            for (std::size_t k = 0; k < here; ++k) {
                const std::size_t length = ends[i + k] - from;
                if (length <= kShort) [[likely]] add_short(lows[k], highs[k], 1, first + i + k);
                else add_long({reinterpret_cast<const char*>(s + from), length}, 1, first + i + k);
                from = ends[i + k];
            }
        }
    }

    // Adds what another table has counted. If it is told to stop, this one is no use any more.
    void join(const PieceTable& other, const GoOn* go_on) {
        std::size_t steps = 0;
        for (const Slot& slot : other.slots_) {
            if (++steps % 4096 == 0) ask(go_on);
            if (!slot.count) continue;
            if ((used_ + 1) * 3 > slots_.size() * 2) grow();
            if (slot.high >> 56 == kLongMark) add_long(other.text_of(slot), slot.count, slot.first);
            else add_short(slot.low, slot.high, slot.count, slot.first);
        }
    }

    // All pieces in any order. The views last as long as the table is not changed.
    std::vector<Counted> all() const {
        std::vector<Counted> all;
        all.reserve(used_);
        for (const Slot& slot : slots_)
            if (slot.count) all.push_back({text_of(slot), slot.count, slot.first});
        return all;
    }

    std::size_t size() const { return used_; }

    // Bytes that the table takes at most while `more` pieces are added; while it doubles, the old one is there too.
    std::size_t memory_for(std::size_t more) const {
        const std::size_t slots = slots_.size() * sizeof(Slot);
        return ((used_ + more) * 3 > slots_.size() * 2 ? slots * 3 : slots) + arena_.capacity();
    }

   private:
    static constexpr std::size_t kFewest = 1 << 12, kShort = 15;
    static constexpr u64 kLongMark = 0xFF;

    struct Slot {
        u64 low = 0, high = 0;  // the bytes and, on top, the length; or: where the text is, its length, kLongMark
        std::int64_t count = 0;
        u64 first = 0;
    };
    std::vector<Slot> slots_;
    std::size_t used_ = 0;
    std::string arena_;

    static void short_key(const u8* s, std::size_t n, u64& low, u64& high) {
        std::memcpy(&low, s, 8);
        std::memcpy(&high, s + 8, 8);
        n = std::min<std::size_t>(n, 15);
        low &= kMasks.low[n];
        high = (high & kMasks.high[n]) | u64{n} << 56;
    }
    std::size_t home(u64 low, u64 high) const {
        return (low * 0x9E3779B97F4A7C15u + high * 0xD6E8FEB86659FD93u) >> (64 - static_cast<unsigned>(std::countr_zero(slots_.size())));
    }

    void add_short(u64 low, u64 high, std::int64_t count, u64 first) {
        for (std::size_t i = home(low, high);; i = (i + 1) & (slots_.size() - 1)) {
            Slot& slot = slots_[i];
            if (slot.low == low && slot.high == high) [[likely]] {
                slot.count += count;
                slot.first = std::min(slot.first, first);
                return;
            }
            if (!slot.count) {
                slot = {low, high, count, first};
                ++used_;
                return;
            }
        }
    }

    void add_long(std::string_view piece, std::int64_t count, u64 first) {
        const u64 hash = hash_text(piece);
        for (std::size_t i = home(hash, kLongMark << 56);; i = (i + 1) & (slots_.size() - 1)) {
            Slot& slot = slots_[i];
            if (!slot.count) {
                slot = {arena_.size(), kLongMark << 56 | piece.size(), count, first};
                arena_.append(piece);
                ++used_;
                return;
            }
            if (slot.high == (kLongMark << 56 | piece.size()) && text_of(slot) == piece) {
                slot.count += count;
                slot.first = std::min(slot.first, first);
                return;
            }
        }
    }

    std::string_view text_of(const Slot& slot) const {
        if (slot.high >> 56 == kLongMark) return {arena_.data() + slot.low, slot.high & 0xFFFFFFFFFFFFFF};
        return {reinterpret_cast<const char*>(&slot.low), slot.high >> 56};  // low and high lie side by side
    }

    void grow() {
        std::vector<Slot> old(slots_.size() * 2);
        old.swap(slots_);
        for (const Slot& slot : old) {
            if (!slot.count) continue;
            const bool is_long = slot.high >> 56 == kLongMark;
            std::size_t i = is_long ? home(hash_text(text_of(slot)), kLongMark << 56) : home(slot.low, slot.high);
            while (slots_[i].count) i = (i + 1) & (slots_.size() - 1);
            slots_[i] = slot;
        }
    }
};

// Counts that did not fit into memory, as runs in temporary files: pieces in the order of their bytes, each once. Read together
// they give every piece once, with its counts added up, exactly as one table would have.
class Runs {
   public:
    static constexpr std::size_t kMostFiles = 16;  // of a thread; with that many, they are merged into one

    void spill(const PieceTable& table, const GoOn* go_on) {
        std::vector<Counted> pieces = table.all();
        sort(pieces, [](const Counted& a, const Counted& b) { return a.piece < b.piece; }, go_on);
        write([&](const auto& one_by_one) { for (const Counted& one : pieces) one_by_one(one); }, go_on);
        if (files_.size() < kMostFiles) return;
        Runs all;
        all.write([&](const auto& one_by_one) { merged(one_by_one); }, go_on);
        files_ = std::move(all.files_);
    }

    bool empty() const { return files_.empty(); }
    void take(Runs& other) {
        for (File& file : other.files_) files_.push_back(std::move(file));
        other.files_.clear();
    }

    // Calls `use` for every piece, in the order of bytes.
    template <class Use>
    void merged(Use use) const {
        struct Reader {
            std::FILE* file;
            Head head;
            std::string piece;
            bool next() {
                if (std::fread(&head, sizeof head, 1, file) != 1) return false;
                piece.resize(head.size);
                if (std::fread(piece.data(), 1, head.size, file) != head.size)
                    fail("a temporary file of counts could not be read");
                return true;
            }
        };
        std::vector<Reader> readers;
        for (const File& file : files_) {
            std::rewind(file.get());
            readers.push_back({file.get(), {}, {}});
            if (!readers.back().next()) readers.pop_back();
        }
        const auto later = [&](std::size_t a, std::size_t b) { return readers[a].piece > readers[b].piece; };
        std::vector<std::size_t> heap(readers.size());
        for (std::size_t i = 0; i < heap.size(); ++i) heap[i] = i;
        std::make_heap(heap.begin(), heap.end(), later);
        std::string piece;
        Head sum{};
        bool open = false;
        while (!heap.empty()) {
            std::pop_heap(heap.begin(), heap.end(), later);
            Reader& reader = readers[heap.back()];
            if (open && reader.piece == piece) {
                sum.count += reader.head.count;
                sum.first = std::min(sum.first, reader.head.first);
            } else {
                if (open) use(Counted{piece, sum.count, sum.first});
                piece = reader.piece, sum = reader.head, open = true;
            }
            if (reader.next()) std::push_heap(heap.begin(), heap.end(), later);
            else heap.pop_back();
        }
        if (open) use(Counted{piece, sum.count, sum.first});
    }

   private:
    struct Head {
        std::int64_t count;
        u64 first, size;
    };
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    using File = std::unique_ptr<std::FILE, Close>;
    std::vector<File> files_;

    // One file more, with the pieces that `give` gives in order.
    template <class Give>
    void write(const Give& give, const GoOn* go_on) {
        File file(temporary());
        if (!file) fail("no temporary file for counts beyond the memory limit could be made");
        std::size_t steps = 0;
        give([&](const Counted& one) {
            if (++steps % 4096 == 0) ask(go_on);
            const Head head{one.count, one.first, one.piece.size()};
            if (std::fwrite(&head, sizeof head, 1, file.get()) != 1 ||
                std::fwrite(one.piece.data(), 1, one.piece.size(), file.get()) != one.piece.size())
                fail("the temporary file for counts beyond the memory limit could not be written");
        });
        if (std::fflush(file.get())) fail("the temporary file for counts beyond the memory limit could not be written");
        files_.push_back(std::move(file));
    }

    [[noreturn]] static void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

    // In the folder that TMPDIR names, else in /tmp; it has no name, and is gone when it is closed.
    static std::FILE* temporary() {
#if defined(__unix__) || defined(__APPLE__)
        const char* folder = std::getenv("TMPDIR");
        std::string path = std::string(folder && *folder ? folder : "/tmp") + "/minigpt_tok-XXXXXX";
        const int descriptor = mkstemp(path.data());
        if (descriptor < 0) return nullptr;
        unlink(path.c_str());
        return fdopen(descriptor, "w+b");
#else
        return std::tmpfile();
#endif
    }
};

// Cuts texts and counts their pieces. One per thread.
class PieceCounter {
   public:
    // `memory_limit`: bytes for the table; what is counted beyond goes to files. 0: no limit.
    PieceCounter(PatternChoice pattern, std::size_t memory_limit) : splitter_(pattern), memory_limit_(memory_limit) {}

    PieceTable table;
    Runs runs;

    // A text of its own in valid UTF-8; its pieces are numbered from `first` on.
    void add(const u8* s, std::size_t n, u64 first, const GoOn& go_on) {
        std::size_t window = kWindow;
        for (std::size_t at = 0; at < n && go_on();) {
            std::size_t size = std::min(window, n - at);
            if (size > 0xFFFFFF00) throw std::overflow_error("a piece of the text is longer than 4 GiB, the most that can be counted");
            const bool last = at + size == n;
            if (!last)
                while (is_continuation(s[at + size])) --size;
            const u8* from = s + at;
            if (n - at - size < kRoom) {  // nothing may be read behind the text, so its end is copied to where there is room
                if (buffer_.size() < size + kRoom) buffer_.resize(size + kRoom);
                std::memcpy(buffer_.data(), from, size);
                from = buffer_.data();
            }
            const std::size_t room = (splitter_.choice().pattern == Pattern::none ? 1 : size) + kPlacesRoom;
            if (ends_.size() < room) ends_.resize(room);
            const std::size_t count = splitter_.cut(from, size, last, ends_.data());
            if (memory_limit_ && table.size() && table.memory_for(count) > memory_limit_) {
                runs.spill(table, &go_on);
                table = PieceTable();
            }
            table.add(from, ends_.data(), count, first);
            first += count;
            window = count ? kWindow : window * 2;
            if (count) at += ends_[count - 1];
        }
    }

   private:
    static constexpr std::size_t kWindow = 16 << 10, kRoom = 64;
    Splitter splitter_;
    std::size_t memory_limit_;
    std::vector<u32> ends_;
    std::vector<u8> buffer_;
};

// All that has been counted, each piece once, in the order in which they were first seen.
class AllPieces {
   public:
    AllPieces(std::deque<PieceCounter>& counters, const GoOn* go_on) {
        Runs runs;
        for (PieceCounter& counter : counters) runs.take(counter.runs);
        if (runs.empty()) {
            for (std::size_t i = 1; i < counters.size(); ++i) {
                counters[0].table.join(counters[i].table, go_on);
                counters[i].table = PieceTable();
            }
            if (!counters.empty()) table_ = std::move(counters[0].table);
            pieces_ = table_.all();
        } else {
            for (PieceCounter& counter : counters) {
                runs.spill(counter.table, go_on);
                counter.table = PieceTable();
            }
            std::vector<std::size_t> starts;
            runs.merged([&](const Counted& one) {
                if (pieces_.size() % 65536 == 0) ask(go_on);
                starts.push_back(text_.size());
                text_.append(one.piece);
                pieces_.push_back({{nullptr, one.piece.size()}, one.count, one.first});
            });
            for (std::size_t i = 0; i < pieces_.size(); ++i) pieces_[i].piece = {text_.data() + starts[i], pieces_[i].piece.size()};
        }
        sort(pieces_, [](const Counted& a, const Counted& b) { return a.first < b.first; }, go_on);
    }
    AllPieces(const AllPieces&) = delete;

    std::size_t size() const { return pieces_.size(); }
    auto begin() const { return pieces_.begin(); }
    auto end() const { return pieces_.end(); }

   private:
    PieceTable table_;
    std::string text_;
    std::vector<Counted> pieces_;
};

}  // namespace minigpt
