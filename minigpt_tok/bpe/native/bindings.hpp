// What Python sees of the core. The calls that are too short for pybind11's conversions use the C API.
//
// Compiled once for each level of the instruction set: core_v*.cpp names the module.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <atomic>
#include <chrono>
#include <optional>

#include "count.hpp"
#include "decode.hpp"
#include "encoder.hpp"
#include "train.hpp"

namespace py = pybind11;
using namespace minigpt;

namespace {

Text text_of(PyObject* object) {
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "text is %.100s, not str", Py_TYPE(object)->tp_name);
        throw py::error_already_set();
    }
    const std::size_t length = static_cast<std::size_t>(PyUnicode_GET_LENGTH(object));
    if (PyUnicode_IS_ASCII(object)) return {PyUnicode_DATA(object), length, 0};
    return {PyUnicode_DATA(object), length, static_cast<unsigned>(PyUnicode_KIND(object))};
}

// Asks Python about Ctrl-C at most every 50 ms, from a thread that does not hold the GIL.
class Signals {
   public:
    bool go_on() {
        if (++asked_ % 16) return true;
        const auto now = std::chrono::steady_clock::now();
        if (now - last_ < std::chrono::milliseconds(50)) return true;
        last_ = now;
        const PyGILState_STATE state = PyGILState_Ensure();
        raised_ = PyErr_CheckSignals() != 0;
        if (raised_) PyErr_Fetch(&type_, &value_, &trace_);
        PyGILState_Release(state);
        return !raised_;
    }
    void raise_if_interrupted() {
        if (!raised_) return;
        PyErr_Restore(type_, value_, trace_);
        throw py::error_already_set();
    }

   private:
    unsigned asked_ = 0;
    bool raised_ = false;
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
    PyObject *type_ = nullptr, *value_ = nullptr, *trace_ = nullptr;
};

// Raw bytes by id as Python lists them, None where there are none.
void read_tokens(const py::list& tokens, std::vector<std::string>& raw, std::vector<bool>& present) {
    for (const auto& token : tokens) {
        present.push_back(!token.is_none());
        raw.push_back(token.is_none() ? std::string() : token.cast<std::string>());
    }
}

template <class Id>
class Bound {
   public:
    explicit Bound(std::unique_ptr<Encoder<Id>> encoder) : encoder_(std::move(encoder)) {}

    static constexpr std::size_t kShortText = 1 << 12;  // characters; a longer text is encoded without the GIL

    void encode_into(const Text& text, Ids<Id>& out) {
        typename Encoder<Id>::Lease worker(*encoder_);
        try {
            if (text.length <= kShortText) {
                Encoder<Id>::encode(*worker.operator->(), text, out, [] { return true; });
                return;
            }
            Signals signals;
            {
                const py::gil_scoped_release released;
                Encoder<Id>::encode(*worker.operator->(), text, out, [&] { return signals.go_on(); });
            }
            signals.raise_if_interrupted();
        } catch (const BadText&) {
            throw py::value_error("the text cannot be encoded");
        }
    }

    py::list encode(py::handle text) {
        scratch_.clear();
        Ids<Id> ids = std::move(scratch_);  // taken, so that another thread, let in meanwhile, has one of its own
        encode_into(text_of(text.ptr()), ids);
        py::list result = list(ids.data(), ids.size());
        if (ids.size() <= kShortText) scratch_ = std::move(ids);
        return result;
    }

    // A str, or a buffer of UTF-8 that has been found valid.
    py::array encode_to_numpy(const py::object& text) {
        Ids<Id> ids;
        if (PyUnicode_Check(text.ptr())) {
            encode_into(text_of(text.ptr()), ids);
        } else {
            const py::buffer_info info = py::buffer(text).request();
            encode_into({info.ptr, static_cast<std::size_t>(info.size * info.itemsize), 0}, ids);
        }
        return array(std::move(ids));
    }

    std::size_t count(py::handle text) {
        Ids<Id> ids;
        encode_into(text_of(text.ptr()), ids);
        return ids.size();
    }

    std::pair<py::array, py::array> encode_batch_to_numpy(const py::list& texts, unsigned threads) {
        Ids<Id> ids;
        std::vector<std::size_t> counts;
        batch(texts, threads, ids, counts);
        py::array_t<std::int64_t> offsets(static_cast<py::ssize_t>(counts.size() + 1));
        std::int64_t* at = offsets.mutable_data();
        *at = 0;
        for (const std::size_t count : counts) at[1] = at[0] + static_cast<std::int64_t>(count), ++at;
        return {array(std::move(ids)), offsets};
    }

    py::list encode_batch(const py::list& texts, unsigned threads) {
        Ids<Id> ids;
        std::vector<std::size_t> counts;
        batch(texts, threads, ids, counts);
        py::list lists(counts.size());
        const Id* at = ids.data();
        for (std::size_t i = 0; i < counts.size(); at += counts[i++]) lists[i] = list(at, counts[i]);
        return lists;
    }

   private:
    std::unique_ptr<Encoder<Id>> encoder_;
    Ids<Id> scratch_;
    std::vector<PyObject*> integers_;  // one ready-made int for every id, so that a list costs no conversion

    void batch(const py::list& list, unsigned threads, Ids<Id>& ids, std::vector<std::size_t>& counts) {
        const py::tuple kept(list);  // another thread may change the list meanwhile
        std::vector<Text> texts;
        texts.reserve(kept.size());
        for (const auto& text : kept) texts.push_back(text_of(text.ptr()));
        std::size_t bad;
        Signals signals;
        {
            const py::gil_scoped_release released;
            encoder_->encode_batch(texts, threads, ids, counts, bad, [&] { return signals.go_on(); });
        }
        signals.raise_if_interrupted();
        if (bad != kValid) throw py::value_error("text " + std::to_string(bad) + " cannot be encoded");
    }

    py::list list(const Id* ids, std::size_t count) {
        if (integers_.empty())
            for (std::size_t id = 0; id < encoder_->vocab().size(); ++id) integers_.push_back(PyLong_FromSize_t(id));
        PyObject* list = PyList_New(static_cast<Py_ssize_t>(count));
        if (!list) throw py::error_already_set();
        for (std::size_t i = 0; i < count; ++i) {
            PyObject* integer = integers_[ids[i]];
            Py_INCREF(integer);
            PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), integer);
        }
        return py::reinterpret_steal<py::list>(list);
    }

    static py::array array(Ids<Id>&& ids) {
        const auto count = static_cast<py::ssize_t>(ids.size());
        Id* data = ids.release();
        return py::array_t<Id>(count, data, py::capsule(data, [](void* p) { std::free(p); }));
    }
};

// `encode(text)` without a detour: a built-in function that does just this, and hands every other call to `slow`.
template <class Id>
struct FastEncode {
    Bound<Id>* bound;
    py::object owner, slow;

    static PyObject* call(PyObject* capsule, PyObject* const* args, Py_ssize_t count, PyObject* names) {
        auto* self = static_cast<FastEncode*>(PyCapsule_GetPointer(capsule, nullptr));
        if (count == 1 && !names && PyUnicode_Check(args[0])) {
            try {
                return self->bound->encode(args[0]).release().ptr();
            } catch (py::error_already_set& error) {
                error.restore();
                return nullptr;
            } catch (const py::value_error&) {
                // falls through: the other way says what is wrong with the text
            } catch (const std::bad_alloc&) {
                return PyErr_NoMemory();
            }
        }
        return PyObject_Vectorcall(self->slow.ptr(), args, static_cast<std::size_t>(count), names);
    }

    static py::object make(const py::object& owner, const py::object& slow) {
        static PyMethodDef method = {"encode", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call)),
                                     METH_FASTCALL | METH_KEYWORDS, "The ids of a text; see Tokenizer.encode."};
        auto* self = new FastEncode{owner.cast<Bound<Id>*>(), owner, slow};
        const py::object capsule = py::reinterpret_steal<py::object>(
            PyCapsule_New(self, nullptr, [](PyObject* c) { delete static_cast<FastEncode*>(PyCapsule_GetPointer(c, nullptr)); }));
        return py::reinterpret_steal<py::object>(PyCFunction_New(&method, capsule.ptr()));
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
            Vocab vocab(raw, present, character_unit, whole_piece);
            for (const auto& [code_point, id] : characters) vocab.set_character(code_point, id);
            if (by_bytes) vocab.merge_by_bytes();
            else vocab.merge_by_pair(lefts, rights, results);
            PatternChoice choice;
            if (!choose_pattern(pattern, choice)) throw py::value_error("no such pattern: " + pattern);
            return std::make_unique<B>(std::make_unique<Encoder<Id>>(std::move(vocab), choice, whole_piece));
        }))
        .def("encode", &B::encode)
        .def("fast_encode", [](const py::object& self, const py::object& slow) { return FastEncode<Id>::make(self, slow); })
        .def("encode_to_numpy", &B::encode_to_numpy)
        .def("count", &B::count)
        .def("encode_batch", &B::encode_batch)
        .def("encode_batch_to_numpy", &B::encode_batch_to_numpy);
}

Vocab byte_vocab(const py::list& tokens, bool by_bytes, const std::vector<u32>& lefts, const std::vector<u32>& rights,
                 const std::vector<u32>& results) {
    std::vector<std::string> raw;
    std::vector<bool> present;
    read_tokens(tokens, raw, present);
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
            const auto array = py::array::ensure(ids, py::array::c_style);
            const auto count = static_cast<std::size_t>(array.size());
            switch (array.dtype().kind() == 'u' ? array.itemsize() : -array.itemsize()) {
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
            values[i] = PyLong_AsLongLong(PyList_GET_ITEM(list, static_cast<Py_ssize_t>(i)));
            if (values[i] == -1 && PyErr_Occurred()) {
                PyErr_Clear();
                return i;
            }
        }
        return decoder_.decode(values.data(), count, out);
    }
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
    std::optional<std::size_t> add_buffer(const py::buffer& buffer) {
        const py::buffer_info info = buffer.request();
        const std::string_view view(static_cast<const char*>(info.ptr), static_cast<std::size_t>(info.size * info.itemsize));
        std::size_t invalid;
        {
            const py::gil_scoped_release released;
            invalid = first_invalid_utf8(reinterpret_cast<const u8*>(view.data()), view.size());
        }
        if (invalid != kValid) return invalid;
        add_views({view});
        return std::nullopt;
    }

    std::size_t pieces() {
        return all().size();
    }
    std::size_t bytes() const { return bytes_; }

    // Code point -> how often it occurs.
    std::unordered_map<u32, std::int64_t> characters() {
        std::unordered_map<u32, std::int64_t> counts;
        for (const Counted& one : all())
            for (std::size_t i = 0; i < one.piece.size(); i += utf8_length(static_cast<u8>(one.piece[i])))
                counts[decode_utf8(reinterpret_cast<const u8*>(one.piece.data()) + i)] += one.count;
        return counts;
    }

    py::dict train(const std::vector<std::string>& base, bool characters, std::size_t most, std::int64_t min_frequency,
                   const std::string& tie_name, std::size_t max_length, const py::object& progress) {
        const Tie tie = tie_name == "lowest_ids" ? Tie::lowest_ids : tie_name == "first_seen" ? Tie::first_seen : Tie::greatest_bytes;
        std::vector<LearnedMerge> merges;
        std::int64_t base_tokens = 0, best_left = -1;
        Signals signals;
        bool stopped = false;
        {
            const py::gil_scoped_release released;
            Trainer trainer(base, tie, min_frequency, max_length);
            characters ? fill_characters(trainer, base) : fill_bytes(trainer, base);
            all_.reset();
            base_tokens = trainer.tokens();
            trainer.learn(most, merges, [&](std::size_t done) {
                if (!progress.is_none()) {
                    const py::gil_scoped_acquire acquired;
                    progress(done);
                }
                stopped = !signals.go_on();
                return !stopped;
            });
            if (merges.size() < most && !stopped) best_left = trainer.best_left();
        }
        signals.raise_if_interrupted();
        const auto column = [&](auto field) {
            py::array_t<std::int64_t> values(static_cast<py::ssize_t>(merges.size()));
            std::int64_t* at = values.mutable_data();
            for (const LearnedMerge& merge : merges) *at++ = static_cast<std::int64_t>(merge.*field);
            return values;
        };
        py::dict result;
        result["left"] = column(&LearnedMerge::left);
        result["right"] = column(&LearnedMerge::right);
        result["count"] = column(&LearnedMerge::count);
        result["tokens_after"] = column(&LearnedMerge::tokens_after);
        result["base_tokens"] = base_tokens;
        result["best_left"] = best_left;
        return result;
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
        while (counters_.size() < threads_) counters_.emplace_back(pattern_, memory_limit_);
        Signals signals;
        {
            const py::gil_scoped_release released;
            std::atomic<std::size_t> next{0};
            std::atomic<bool> stop{false};
            const auto work = [&](unsigned t, auto go_on) {
                for (std::size_t i; (i = next++) < chunks.size() && !stop;)
                    counters_[t].add(chunks[i].s, chunks[i].n, chunks[i].first, go_on);
            };
            std::vector<std::jthread> running;
            if (chunks.size() > 1)
                for (unsigned t = 1; t < threads_; ++t) running.emplace_back(work, t, [&] { return !stop.load(std::memory_order_relaxed); });
            work(0, [&] {
                if (!signals.go_on()) stop = true;
                return !stop.load(std::memory_order_relaxed);
            });
        }
        signals.raise_if_interrupted();
    }

    std::size_t chunk_end(const u8* s, std::size_t at, std::size_t n) const {
        constexpr std::size_t kChunk = 1 << 20;
        if (pattern_.pattern == Pattern::none || n - at <= kChunk) return n;
        for (std::size_t end = at + kChunk; end < n; ++end)
            if ((s[end] == ' ' || s[end] == '\n') && static_cast<u8>((s[end - 1] | 0x20) - 'a') < 26) return end;
        return n;
    }

    // Counting is over once this is asked for.
    const AllPieces& all() {
        if (!all_) {
            all_ = std::make_unique<AllPieces>(counters_);
            counters_.clear();
        }
        return *all_;
    }

    void fill_bytes(Trainer& trainer, const std::vector<std::string>& base) {
        std::array<u32, 256> number{};
        for (std::size_t i = 0; i < base.size(); ++i) number[static_cast<u8>(base[i][0])] = static_cast<u32>(i);
        const AllPieces& pieces = all();
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
    void fill_characters(Trainer& trainer, const std::vector<std::string>& base) {
        std::vector<u32> number(0x110000, kNone);
        for (std::size_t i = 0; i < base.size(); ++i) number[decode_utf8(reinterpret_cast<const u8*>(base[i].data()))] = static_cast<u32>(i);
        for (const Counted& one : all()) {
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
    module.def("first_invalid_utf8", [](const py::buffer& buffer) -> std::optional<std::size_t> {
        const py::buffer_info info = buffer.request();
        const std::size_t at = first_invalid_utf8(static_cast<const u8*>(info.ptr), static_cast<std::size_t>(info.size * info.itemsize));
        if (at == kValid) return std::nullopt;
        return at;
    });
    module.def("pieces", [](const py::str& text, const std::string& pattern) {
        PatternChoice choice;
        if (!choose_pattern(pattern, choice)) throw py::value_error("no such pattern: " + pattern);
        const std::string utf8 = text;
        std::vector<u32> ends(utf8.size() + 1);
        Splitter splitter(choice);
        py::list pieces;
        const u8* s = reinterpret_cast<const u8*>(utf8.data());
        std::size_t start = 0;
        const std::size_t count = splitter.cut(s, utf8.size(), true, ends.data());
        for (std::size_t i = 0; i < count; start = ends[i++]) pieces.append(py::str(utf8.substr(start, ends[i] - start)));
        return pieces;
    });
    py::class_<BoundDecoder>(module, "Decoder", py::module_local())
        .def(py::init<const py::list&>())
        .def("decode_bytes", &BoundDecoder::decode_bytes)
        .def("decode", &BoundDecoder::decode);
    py::class_<Counter>(module, "Counter", py::module_local())
        .def(py::init<const std::string&, unsigned, std::size_t>())
        .def("add", &Counter::add)
        .def("add_buffer", &Counter::add_buffer)
        .def("characters", &Counter::characters)
        .def("train", &Counter::train)
        .def_property_readonly("pieces", &Counter::pieces)
        .def_property_readonly("bytes", &Counter::bytes);
    bind<u16>(module, "Encoder16");
    bind<u32>(module, "Encoder32");
}
