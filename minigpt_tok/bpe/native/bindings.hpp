// What Python sees of the core. The calls that are too short for pybind11's conversions use the C API.
//
// Compiled once for each level of the instruction set: core_v*.cpp names the module.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <atomic>
#include <chrono>
#include <optional>

#include "count.hpp"
#include "decode.hpp"
#include "encoder.hpp"
#include "extend.hpp"
#include "python.hpp"
#include "shortcut.hpp"
#include "threads.hpp"

namespace {

// Raw bytes by id as Python lists them, None where there are none.
void read_tokens(const py::list& tokens, std::vector<std::string>& raw, std::vector<bool>& present) {
    for (const auto& token : tokens) {
        present.push_back(!token.is_none());
        raw.push_back(token.is_none() ? std::string() : token.cast<std::string>());
    }
}

// That no id leads outside the tables.
void check_ids(std::size_t ids, const std::vector<u32>& lefts, const std::vector<u32>& rights, const std::vector<u32>& results,
               const std::vector<std::pair<u32, u32>>& characters) {
    const auto fits = [&](u32 id) { return id < ids; };
    bool all = lefts.size() == rights.size() && lefts.size() == results.size();
    for (const auto* column : {&lefts, &rights, &results}) all = all && std::all_of(column->begin(), column->end(), fits);
    for (const auto& character : characters) all = all && fits(character.second);
    if (!all) throw py::index_error("a merge or a base token has an id that is not in the vocabulary");
}

template <class Id>
class Bound {
   public:
    explicit Bound(std::unique_ptr<Encoder<Id>> encoder) : encoder_(std::move(encoder)) {}
    ~Bound() {
        for (PyObject* integer : integers_) Py_DECREF(integer);
    }
    Bound(const Bound&) = delete;

    static constexpr std::size_t kShortText = 1 << 12;  // characters; a longer text is encoded without the GIL

    template <class Out>
    void encode_into(const Text& text, Out& out) {
        typename Encoder<Id>::Lease worker(*encoder_);
        try {
            if (text.length <= kShortText) Encoder<Id>::encode(*worker, text, out, [] { return true; });
            else without_gil([&](const GoOn& go_on) { Encoder<Id>::encode_long(*worker, text, out, go_on); });
        } catch (const BadText&) {
            throw py::value_error("the text cannot be encoded");
        }
    }

    py::list encode(py::handle text) {
        scratch_.clear();
        Ids<Id> ids = std::move(scratch_);  // taken, so that another thread, let in meanwhile, has one of its own
        encode_into(text_of(text.ptr()), ids);
        py::list result = list(ids.data(), ids.size());
        if (ids.room() <= kShortText * 8) scratch_ = std::move(ids);
        return result;
    }

    // A str, or memory with UTF-8 that has been found valid.
    py::array encode_to_numpy(const py::object& text) {
        Ids<Id> ids;
        if (PyUnicode_Check(text.ptr())) {
            encode_into(text_of(text.ptr()), ids);
        } else {
            const Memory memory(text);
            encode_into({memory.data(), memory.size(), 0}, ids);
        }
        return array(std::move(ids));
    }

    std::size_t count(py::handle text) {
        Tally ids;
        encode_into(text_of(text.ptr()), ids);
        return ids.size();
    }

    // Each text a str, or bytes that should be UTF-8.
    std::pair<py::array, py::array> encode_batch_to_numpy(const py::list& texts, unsigned threads, std::optional<Id> separator) {
        Ids<Id> ids;
        std::vector<std::size_t> counts;
        batch(texts, text_or_utf8_of, threads, separator, ids, counts);
        py::array_t<std::int64_t> offsets(static_cast<py::ssize_t>(counts.size() + 1));
        std::int64_t* at = offsets.mutable_data();
        *at = 0;
        for (const std::size_t count : counts) at[1] = at[0] + static_cast<std::int64_t>(count), ++at;
        return {array(std::move(ids)), offsets};
    }

    py::list encode_batch(const py::list& texts, unsigned threads) {
        Ids<Id> ids;
        std::vector<std::size_t> counts;
        batch(texts, text_of, threads, std::nullopt, ids, counts);
        py::list lists(counts.size());
        const Id* at = ids.data();
        Signals signals;
        for (std::size_t i = 0; i < counts.size(); at += counts[i++]) {
            PyList_SET_ITEM(lists.ptr(), static_cast<Py_ssize_t>(i), list(at, counts[i]).release().ptr());
            if (i % 1024 == 0 && !signals.go_on()) signals.raise_if_interrupted();
        }
        return lists;
    }

   private:
    std::unique_ptr<Encoder<Id>> encoder_;
    Ids<Id> scratch_;
    std::vector<PyObject*> integers_;  // one ready-made int for every id, so that a list costs no conversion

    void batch(const py::list& list, Text (*read)(PyObject*), unsigned threads, std::optional<Id> separator, Ids<Id>& ids,
               std::vector<std::size_t>& counts) {
        const py::tuple kept(list);  // another thread may change the list meanwhile
        std::vector<Text> texts;
        texts.reserve(kept.size());
        for (const auto& text : kept) texts.push_back(read(text.ptr()));
        std::deque<typename Encoder<Id>::Lease> workers;
        for (unsigned t = Encoder<Id>::threads_for(texts, threads); t; --t) workers.emplace_back(*encoder_);
        std::size_t bad;
        without_gil([&](const GoOn& go_on) { encoder_->encode_batch(texts, separator, workers, ids, counts, bad, go_on); });
        if (bad != kValid) throw py::value_error("text " + std::to_string(bad) + " cannot be encoded");
    }

    py::list list(const Id* ids, std::size_t count) {
        if (integers_.empty()) make_integers();
        PyObject* list = PyList_New(static_cast<Py_ssize_t>(count));
        if (!list) throw py::error_already_set();
        auto result = py::reinterpret_steal<py::list>(list);
        for (std::size_t i = 0; i < count;) {
            for (const std::size_t end = std::min(count, i + (std::size_t{1} << 20)); i < end; ++i) {
                PyObject* integer = integers_[ids[i]];
                Py_INCREF(integer);
                PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), integer);
            }
            if (i < count && PyErr_CheckSignals()) throw py::error_already_set();
        }
        return result;
    }

    void make_integers() {
        integers_.reserve(encoder_->vocab().size());
        for (std::size_t id = 0; id < encoder_->vocab().size(); ++id) {
            PyObject* integer = PyLong_FromSize_t(id);
            if (!integer) {
                for (PyObject* made : integers_) Py_DECREF(made);
                integers_.clear();
                throw py::error_already_set();
            }
            integers_.push_back(integer);
        }
    }

    static py::array array(Ids<Id>&& ids) {
        const auto count = static_cast<py::ssize_t>(ids.size());
        Id* data = ids.release();
        return py::array_t<Id>(count, data, py::capsule(data, [](void* p) { std::free(p); }));
    }
};

template <class Id>
void bind(py::module_& module, const char* name) {
    using B = Bound<Id>;
    py::class_<B>(module, name, py::module_local())
        .def(py::init([](const py::list& tokens, const std::vector<u32>& lefts, const std::vector<u32>& rights,
                         const std::vector<u32>& results, bool by_bytes, bool whole_piece, const std::string& pattern,
                         const std::vector<std::pair<u32, u32>>& characters, bool character_unit) {
            std::vector<std::string> raw;
            std::vector<bool> present;
            read_tokens(tokens, raw, present);
            check_ids(raw.size(), lefts, rights, results, characters);
            Vocab vocab(raw, present, character_unit, whole_piece);
            for (const auto& [code_point, id] : characters) vocab.set_character(code_point, id);
            if (by_bytes) vocab.merge_by_bytes();
            else vocab.merge_by_pair(lefts, rights, results);
            PatternChoice choice;
            if (!choose_pattern(pattern, choice)) throw py::value_error("no such pattern: " + pattern);
            return std::make_unique<B>(std::make_unique<Encoder<Id>>(std::move(vocab), choice, whole_piece));
        }))
        .def("encode", &B::encode)
        .def("fast_encode", [](const py::object& self, const py::object& slow) { return Shortcut<B>::make(self, slow); })
        .def("encode_to_numpy", &B::encode_to_numpy)
        .def("count", &B::count)
        .def("encode_batch", &B::encode_batch)
        .def("encode_batch_to_numpy", &B::encode_batch_to_numpy, py::arg("texts"), py::arg("threads"), py::arg("separator") = py::none());
}

Vocab byte_vocab(const py::list& tokens, bool by_bytes, const std::vector<u32>& lefts, const std::vector<u32>& rights,
                 const std::vector<u32>& results) {
    std::vector<std::string> raw;
    std::vector<bool> present;
    read_tokens(tokens, raw, present);
    check_ids(raw.size(), lefts, rights, results, {});
    Vocab vocab(raw, present, false, false);
    if (by_bytes) vocab.merge_by_bytes();
    else vocab.merge_by_pair(lefts, rights, results);
    return vocab;
}

class BoundDecoder {
   public:
    explicit BoundDecoder(const py::list& tokens) : decoder_(make(tokens)) {}

    // ids: a list of ints, or an array of an integer type. Bytes, or the position of the first id that is none.
    py::object decode_bytes(const py::object& ids) {
        std::string out;
        const std::size_t bad = decode_any(ids, out);
        if (bad != kValid) return py::int_(bad);
        return py::bytes(out);
    }
    py::object decode(const py::object& ids, const char* errors) {
        std::string out;
        const std::size_t bad = decode_any(ids, out);
        if (bad != kValid) return py::int_(bad);
        PyObject* text = PyUnicode_DecodeUTF8(out.data(), static_cast<Py_ssize_t>(out.size()), errors);
        if (!text) throw py::error_already_set();
        return py::reinterpret_steal<py::object>(text);
    }

   private:
    Decoder decoder_;

    static Decoder make(const py::list& tokens) {
        std::vector<std::string> raw;
        std::vector<bool> present;
        read_tokens(tokens, raw, present);
        return {raw, present};
    }

    std::size_t decode_any(const py::object& ids, std::string& out) {
        if (py::isinstance<py::array>(ids)) {
            const auto array = py::array::ensure(ids, int{py::array::c_style} | int{py::detail::npy_api::NPY_ARRAY_ALIGNED_});
            if (!array) throw py::error_already_set();
            const auto count = static_cast<std::size_t>(array.size());
            const py::dtype dtype = array.dtype();
            if (dtype.byteorder() == '=' || dtype.byteorder() == '|') switch (dtype.kind() == 'u' ? array.itemsize() : -array.itemsize()) {
                case 2: return decoder_.decode(static_cast<const u16*>(array.data()), count, out);
                case 4: return decoder_.decode(static_cast<const u32*>(array.data()), count, out);
                case -4: return decoder_.decode(static_cast<const std::int32_t*>(array.data()), count, out);
                default: break;
            }
            const auto wide = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>(array);
            return decoder_.decode(wide.data(), count, out);
        }
        PyObject* list = ids.ptr();  // a list, as the caller made sure
        const auto count = static_cast<std::size_t>(PyList_GET_SIZE(list));
        std::vector<std::int64_t> values(count);
        for (std::size_t i = 0; i < count; ++i) {
            PyObject* id = PyList_GET_ITEM(list, static_cast<Py_ssize_t>(i));
            values[i] = PyLong_CheckExact(id) ? PyLong_AsLongLong(id) : index(py::reinterpret_borrow<py::object>(id));
            if (values[i] == -1 && PyErr_Occurred()) {
                if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_OverflowError)) throw py::error_already_set();
                PyErr_Clear();
                return i;
            }
            if (static_cast<std::size_t>(PyList_GET_SIZE(list)) != count) throw std::runtime_error("the list of ids was changed while it was read");
        }
        return decoder_.decode(values.data(), count, out);
    }

    // Of anything else but an int; it may run Python code.
    static long long index(const py::object& id) { return PyLong_AsLongLong(id.ptr()); }
};

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
    void add_counted(const py::list& texts, const py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>& counts) {
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

PYBIND11_MODULE(MINIGPT_MODULE, module) {
    module.def("set_classes", [](const py::bytes& flags) {
        const std::string_view view(flags);
        if (view.size() != 0x110000) throw py::value_error("the class table has one byte for each of 0x110000 code points");
        classes().assign(std::vector<u8>(view.begin(), view.end()));
    });
    // (id, left, right) for each token of more than one byte, in the order of ids: what merging its bytes with lower ranks leaves.
    module.def("implied_merges", [](const py::list& tokens) {
        const Vocab vocab = byte_vocab(tokens, true, {}, {}, {});
        std::vector<std::array<u32, 3>> implied;
        std::vector<u32> ids, units;
        for (u32 id = 0; id < vocab.size(); ++id) {
            if (vocab.length_of(id) < 2) continue;
            ids.clear();
            if (vocab.merge_token(id, id, ids, units) && ids.size() == 2) implied.push_back({id, ids[0], ids[1]});
        }
        return implied;
    });
    // For each token of more than one byte whether merging its bytes gives it: the ids of those.
    module.def("made_alone", [](const py::list& tokens, const std::vector<u32>& lefts, const std::vector<u32>& rights,
                                const std::vector<u32>& results, bool by_bytes) {
        const Vocab vocab = byte_vocab(tokens, by_bytes, lefts, rights, results);
        std::vector<u32> made, ids, units;
        for (u32 id = 0; id < vocab.size(); ++id) {
            if (vocab.length_of(id) < 2) continue;
            ids.clear();
            if (vocab.merge_token(id, kNone, ids, units) && ids.size() == 1 && ids[0] == id) made.push_back(id);
        }
        return made;
    });
    module.def("first_invalid_utf8", [](const py::object& buffer) -> std::optional<std::size_t> {
        const Memory memory(buffer);
        const std::size_t at = first_invalid_utf8(memory.data(), memory.size());
        if (at == kValid) return std::nullopt;
        return at;
    });
    module.def("pieces", [](const py::str& text, const std::string& pattern) {
        PatternChoice choice;
        if (!choose_pattern(pattern, choice)) throw py::value_error("no such pattern: " + pattern);
        const std::string utf8 = text;
        std::vector<u32> ends(utf8.size() + kPlacesRoom);
        Splitter splitter(choice);
        py::list pieces;
        const u8* s = reinterpret_cast<const u8*>(utf8.data());
        std::size_t start = 0;
        const std::size_t count = splitter.cut(s, utf8.size(), true, ends.data());
        for (std::size_t i = 0; i < count; start = ends[i++]) pieces.append(py::str(utf8.substr(start, ends[i] - start)));
        return pieces;
    });
    module.def("train_units", &train_units);
    py::class_<BoundDecoder>(module, "Decoder", py::module_local())
        .def(py::init<const py::list&>())
        .def("decode_bytes", &BoundDecoder::decode_bytes)
        .def("decode", &BoundDecoder::decode);
    py::class_<Counter>(module, "Counter", py::module_local())
        .def(py::init<const std::string&, unsigned, std::size_t>(), py::arg("pattern"), py::arg("threads"), py::arg("memory_limit") = 0)
        .def("add", &Counter::add)
        .def("add_buffer", &Counter::add_buffer)
        .def("add_counted", &Counter::add_counted)
        .def("characters", &Counter::characters)
        .def("counted", &Counter::counted)
        .def("train", &Counter::train)
        .def_property_readonly("pieces", &Counter::pieces)
        .def_property_readonly("bytes", &Counter::bytes);
    bind<u16>(module, "Encoder16");
    bind<u32>(module, "Encoder32");
}
