// The encoder as Python sees it. The calls that are too short for pybind11's conversions use the C API.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <optional>
#include <span>

#include "bound_vocab.hpp"
#include "encoder.hpp"
#include "python.hpp"
#include "shortcut.hpp"

namespace {

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
        return flat(std::move(ids), counts);
    }

    // Texts one after another in memory; that each is UTF-8 is either known or to be seen.
    std::pair<py::array, py::array> encode_joined_to_numpy(const py::object& joined, const py::array_t<std::int64_t>& sizes, bool are_utf8,
                                                           unsigned threads, std::optional<Id> separator) {
        const Memory memory(joined);
        std::vector<Text> texts;
        texts.reserve(static_cast<std::size_t>(sizes.size()));
        std::size_t at = 0;
        for (const std::int64_t size : std::span(sizes.data(), static_cast<std::size_t>(sizes.size()))) {
            if (size < 0 || static_cast<std::size_t>(size) > memory.size() - at) throw py::index_error("the sizes do not fit the memory");
            texts.push_back({memory.data() + at, static_cast<std::size_t>(size), 0, !are_utf8});
            at += static_cast<std::size_t>(size);
        }
        Ids<Id> ids;
        std::vector<std::size_t> counts;
        batch(texts, threads, separator, ids, counts);
        return flat(std::move(ids), counts);
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
        batch(texts, threads, separator, ids, counts);
    }

    void batch(const std::vector<Text>& texts, unsigned threads, std::optional<Id> separator, Ids<Id>& ids,
               std::vector<std::size_t>& counts) {
        std::deque<typename Encoder<Id>::Lease> workers;
        for (unsigned t = Encoder<Id>::threads_for(texts, threads); t; --t) workers.emplace_back(*encoder_);
        std::size_t bad;
        without_gil([&](const GoOn& go_on) { encoder_->encode_batch(texts, separator, workers, ids, counts, bad, go_on); });
        if (bad != kValid) throw py::value_error("text " + std::to_string(bad) + " cannot be encoded");
    }

    static std::pair<py::array, py::array> flat(Ids<Id>&& ids, const std::vector<std::size_t>& counts) {
        py::array_t<std::int64_t> offsets(static_cast<py::ssize_t>(counts.size() + 1));
        std::int64_t* at = offsets.mutable_data();
        *at = 0;
        for (const std::size_t count : counts) at[1] = at[0] + static_cast<std::int64_t>(count), ++at;
        return {array(std::move(ids)), offsets};
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
        .def("encode_batch_to_numpy", &B::encode_batch_to_numpy, py::arg("texts"), py::arg("threads"), py::arg("separator") = py::none())
        .def("encode_joined_to_numpy", &B::encode_joined_to_numpy);
}

}  // namespace
