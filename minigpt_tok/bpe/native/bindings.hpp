// What Python sees of the core: the module.
//
// Compiled once for each level of the instruction set: core_v*.cpp names the module.
#pragma once

#include <pybind11/stl.h>

#include <optional>

#include "bound_counter.hpp"
#include "bound_cutter.hpp"
#include "bound_decoder.hpp"
#include "bound_encoder.hpp"
#include "bound_training.hpp"
#include "bound_vocab.hpp"

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
    py::class_<BoundCutter>(module, "Cutter", py::module_local())
        .def(py::init<const std::string&, bool, bool>(), py::arg("token"), py::arg("whole_line"), py::arg("carriage_returns"))
        .def("cut", &BoundCutter::cut)
        .def_property_readonly("separators", &BoundCutter::separators)
        .def_property_readonly("separator_bytes", &BoundCutter::separator_bytes);
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
