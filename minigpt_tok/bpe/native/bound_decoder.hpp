// The decoder as Python sees it.
#pragma once

#include <pybind11/numpy.h>

#include "bound_vocab.hpp"
#include "decode.hpp"
#include "python.hpp"

namespace {

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

}  // namespace
