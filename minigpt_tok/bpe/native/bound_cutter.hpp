// The cutter of documents as Python sees it.
#pragma once

#include <pybind11/numpy.h>

#include "cut.hpp"
#include "python.hpp"

namespace {

class BoundCutter {
 public:
    BoundCutter(const std::string& token, bool whole_line, bool carriage_returns) : cutter_(checked(token), whole_line, carriage_returns) {}

    // (the documents that end in these bytes one after another, int64 size of each, int64 offset of each in the stream, whether
    // all of them are UTF-8); no bytes: the stream has ended.
    py::tuple cut(const py::object& bytes) {
        std::vector<Cutter::Document> documents;
        std::size_t total = 0;
        {
            const Memory memory(bytes);
            const WithoutGil released;
            cutter_.feed(memory.data(), memory.size());
            cutter_.cut(memory.size() == 0, documents);
            for (const auto& document : documents) total += document.size;
        }
        const auto count = static_cast<py::ssize_t>(documents.size());
        py::array_t<std::int64_t> sizes(count), starts(count);
        const auto joined = py::reinterpret_steal<py::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<py::ssize_t>(total)));
        if (!joined) throw py::error_already_set();
        auto* out = reinterpret_cast<u8*>(PyBytes_AS_STRING(joined.ptr()));
        std::int64_t *size = sizes.mutable_data(), *start = starts.mutable_data();
        bool valid = true;
        {
            const WithoutGil released;
            for (const auto& document : documents) {
                const u8* from = cutter_.held() + document.at;
                std::memcpy(out, from, document.size);
                valid = valid && first_invalid_utf8(out, document.size) == kValid;
                out += document.size;
                *size++ = static_cast<std::int64_t>(document.size);
                *start++ = static_cast<std::int64_t>(cutter_.offset() + document.at);
            }
        }
        return py::make_tuple(joined, sizes, starts, valid);
    }

    std::size_t separators() const { return cutter_.separators(); }
    std::size_t separator_bytes() const { return cutter_.separator_bytes(); }

 private:
    Cutter cutter_;

    static const std::string& checked(const std::string& token) {
        if (token.empty()) throw py::value_error("the separator is empty");
        return token;
    }
};

}  // namespace
