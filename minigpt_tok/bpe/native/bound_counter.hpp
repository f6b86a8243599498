// The counter of pieces as Python sees it, and training from what it has counted.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <atomic>
#include <optional>

#include "bound_training.hpp"
#include "count.hpp"
#include "python.hpp"
#include "threads.hpp"

namespace {

// Counts pieces over many calls, then trains. One thread or several: what comes out is the same.
class Counter {
   public:
    Counter(const std::string& pattern, unsigned threads, std::size_t memory_limit)
        : threads_(std::max(threads, 1u)), memory_limit_(memory_limit / threads_) {
        if (!choose_pattern(pattern, pattern_)) throw py::value_error("no such pattern: " + pattern);
    }

    // Texts of their own.
    void add(const py::list& texts) {
        const py::tuple kept(texts);
        std::vector<std::string_view> views;
        for (const auto& text : kept) {
            Py_ssize_t size;
            const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
            if (!data) throw py::error_already_set();
            views.emplace_back(data, static_cast<std::size_t>(size));
        }
        add_views(views);
    }

    // One text, in memory as UTF-8 (a mapped file). The offset of the first byte that is not UTF-8, or None.
    std::optional<std::size_t> add_buffer(const py::object& buffer) {
        const Memory memory(buffer);
        std::size_t invalid = 0;
        without_gil([&](const GoOn&) { invalid = first_invalid_utf8(memory.data(), memory.size()); });
        if (invalid != kValid) return invalid;
        add_views({{reinterpret_cast<const char*>(memory.data()), memory.size()}});
        return std::nullopt;
    }

    // What another counter has counted, of text that follows: distinct pieces in the order in which they were first seen there.
    void add_counted(const py::list& texts, const Array<std::int64_t>& counts) {
        const py::tuple kept(texts);
        if (static_cast<std::size_t>(counts.size()) != kept.size()) throw py::value_error("there must be a count for each piece");
        std::vector<Counted> pieces;
        pieces.reserve(kept.size());
        for (std::size_t i = 0; i < kept.size(); ++i) {
            Py_ssize_t size;
            const char* data = PyUnicode_AsUTF8AndSize(kept[i].ptr(), &size);
            if (!data) throw py::error_already_set();
            if (!size || counts.data()[i] < 1) throw py::value_error("a piece is empty, or its count is below 1");
            pieces.push_back({{data, static_cast<std::size_t>(size)}, counts.data()[i], bytes_ + i});
        }
        if (counters_.empty()) counters_.emplace_back(pattern_, memory_limit_);
        without_gil([&](const GoOn& go_on) { counters_[0].add(pieces, go_on); });
        bytes_ += pieces.size();  // no more than the text had, so numbers go on growing
    }

    std::size_t pieces() {
        std::size_t count = 0;
        without_gil([&](const GoOn& go_on) { count = all(go_on).size(); });
        return count;
    }
    std::size_t bytes() const { return bytes_; }

    // Code point -> how often it occurs.
    std::unordered_map<u32, std::int64_t> characters() {
        std::unordered_map<u32, std::int64_t> counts;
        without_gil([&](const GoOn& go_on) {
            std::vector<std::int64_t> flat(0x110000);
            std::size_t steps = 0;
            for (const Counted& one : all(go_on))
                for (std::size_t i = 0; i < one.piece.size(); i += utf8_length(static_cast<u8>(one.piece[i]))) {
                    flat[decode_utf8(reinterpret_cast<const u8*>(one.piece.data()) + i)] += one.count;
                    if (++steps % 65536 == 0) ask(&go_on);
                }
            for (u32 character = 0; character < flat.size(); ++character)
                if (flat[character]) counts[character] = flat[character];
        });
        return counts;
    }

    py::dict train(const std::vector<std::string>& base, bool characters, std::size_t most, std::int64_t min_frequency,
                   const std::string& tie_name, std::size_t max_length, const py::object& progress) {
        std::vector<LearnedMerge> merges;
        std::int64_t base_tokens = 0, best_left = -1;
        without_gil([&](const GoOn& go_on) {
            Trainer trainer(base, tie_of(tie_name), min_frequency, max_length, go_on);
            characters ? fill_characters(trainer, base, go_on) : fill_bytes(trainer, base, go_on);
            all_.reset();
            base_tokens = trainer.tokens();
            trainer.learn(most, merges, [&](std::size_t done) { tell(progress, done); });
            if (merges.size() < most) best_left = trainer.best_left();
        });
        return columns_of(merges, base_tokens, best_left);
    }

    // The distinct pieces in the order in which they were first seen, and how often each occurs.
    py::tuple counted() {
        const AllPieces* pieces = nullptr;
        without_gil([&](const GoOn& go_on) { pieces = &all(go_on); });
        py::list texts(pieces->size());
        py::array_t<std::int64_t> counts(static_cast<py::ssize_t>(pieces->size()));
        std::int64_t* count = counts.mutable_data();
        std::size_t i = 0;
        for (const Counted& one : *pieces) {
            texts[i++] = py::str(one.piece.data(), one.piece.size());
            *count++ = one.count;
        }
        return py::make_tuple(texts, counts);
    }

   private:
    PatternChoice pattern_;
    unsigned threads_;
    std::size_t memory_limit_;
    std::deque<PieceCounter> counters_;
    std::unique_ptr<AllPieces> all_;
    u64 bytes_ = 0;

    struct Chunk {
        const u8* s;
        std::size_t n;
        u64 first;
    };

    void add_views(const std::vector<std::string_view>& views) {
        // A text is cut where every pattern is certain to cut, so that several threads can share it. A piece's number is the
        // offset of its chunk plus its number there: less than the offset of the next chunk, since a piece has a byte at least.
        std::vector<Chunk> chunks;
        for (const std::string_view view : views) {
            const u8* s = reinterpret_cast<const u8*>(view.data());
            for (std::size_t at = 0; at < view.size();) {
                const std::size_t end = chunk_end(s, at, view.size());
                chunks.push_back({s + at, end - at, bytes_ + at});
                at = end;
            }
            bytes_ += view.size();
        }
        const auto threads = static_cast<unsigned>(std::max<std::size_t>(1, std::min<std::size_t>(threads_, chunks.size())));
        while (counters_.size() < threads) counters_.emplace_back(pattern_, memory_limit_);
        without_gil([&](const GoOn& go_on) {
            std::atomic<std::size_t> next{0};
            share(threads, go_on, [&](unsigned t, const GoOn& ask) {
                for (std::size_t i; ask() && (i = next++) < chunks.size();)
                    counters_[t].add(chunks[i].s, chunks[i].n, chunks[i].first, ask);
            });
        });
    }

    std::size_t chunk_end(const u8* s, std::size_t at, std::size_t n) const {
        constexpr std::size_t kChunk = 1 << 20;
        if (pattern_.pattern == Pattern::none || n - at <= kChunk) return n;
        for (std::size_t end = at + kChunk; end < n; ++end)
            if ((s[end] == ' ' || s[end] == '\n') && static_cast<u8>((s[end - 1] | 0x20) - 'a') < 26) return end;
        return n;
    }

    // Counting is over once this is asked for.
    const AllPieces& all(const GoOn& go_on) {
        if (!all_) {
            all_ = std::make_unique<AllPieces>(counters_, &go_on);
            counters_.clear();
        }
        return *all_;
    }

    void fill_bytes(Trainer& trainer, const std::vector<std::string>& base, const GoOn& go_on) {
        std::array<u32, 256> number{};
        for (std::size_t i = 0; i < base.size(); ++i) number[static_cast<u8>(base[i][0])] = static_cast<u32>(i);
        const AllPieces& pieces = all(go_on);
        std::size_t units = 0;
        for (const Counted& one : pieces) units += one.piece.size();
        trainer.reserve(units, pieces.size());
        for (const Counted& one : pieces) {
            trainer.begin_piece(one.count);
            for (const char byte : one.piece) trainer.add_unit(number[static_cast<u8>(byte)]);
            trainer.end_piece();
        }
    }

    // A character that is no base token cuts the piece.
    void fill_characters(Trainer& trainer, const std::vector<std::string>& base, const GoOn& go_on) {
        std::vector<u32> number(0x110000, kNone);
        for (std::size_t i = 0; i < base.size(); ++i) number[decode_utf8(reinterpret_cast<const u8*>(base[i].data()))] = static_cast<u32>(i);
        for (const Counted& one : all(go_on)) {
            bool open = false;
            for (std::size_t i = 0; i < one.piece.size(); i += utf8_length(static_cast<u8>(one.piece[i]))) {
                const u32 id = number[decode_utf8(reinterpret_cast<const u8*>(one.piece.data()) + i)];
                if (id != kNone && !open) trainer.begin_piece(one.count);
                if (id == kNone && open) trainer.end_piece();
                open = id != kNone;
                if (open) trainer.add_unit(id);
            }
            if (open) trainer.end_piece();
        }
    }
};

}  // namespace
