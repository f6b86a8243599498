// What all bindings need from Python: texts and memory as they lie there, Ctrl-C, and time without the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <optional>
#include <system_error>
#include <thread>

#include "encoder.hpp"
#include "stop.hpp"

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

Text text_or_utf8_of(PyObject* object) {
    if (!PyBytes_Check(object)) return text_of(object);
    return {PyBytes_AS_STRING(object), static_cast<std::size_t>(PyBytes_GET_SIZE(object)), 0, true};
}

// A daemon thread that asks for the GIL while Python ends is ended there and then, by unwinding it (on Linux, before Python
// 3.14). Destructors would end the process over that, so such a thread stands still instead, as it does from 3.14 on.
[[noreturn]] void stand_still() {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

class WithoutGil {
   public:
    WithoutGil() : state_(PyEval_SaveThread()) {}
    ~WithoutGil() {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {
            stand_still();
        }
    }
    WithoutGil(const WithoutGil&) = delete;

   private:
    PyThreadState* state_;
};

class WithGil {
   public:
    WithGil() {
        try {
            state_ = PyGILState_Ensure();
        } catch (...) {
            stand_still();
        }
    }
    ~WithGil() { PyGILState_Release(state_); }
    WithGil(const WithGil&) = delete;

   private:
    PyGILState_STATE state_;
};

// Asks Python about Ctrl-C at most every 50 ms, from the thread that Python called, with or without the GIL.
class Signals {
   public:
    bool go_on() {
        if (raised_) return false;
        if (++asked_ % 4) return true;
        const auto now = std::chrono::steady_clock::now();
        if (now - last_ < std::chrono::milliseconds(50)) return true;
        last_ = now;
        const WithGil gil;
        if (PyErr_CheckSignals()) raised_.emplace();
        return !raised_;
    }
    void raise_if_interrupted() const {
        if (raised_) throw *raised_;
    }

   private:
    unsigned asked_ = 0;
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
    std::optional<py::error_already_set> raised_;
};

// Runs work that takes long without the GIL; it is given what to ask.
template <class Work>
void without_gil(const Work& work) {
    Signals signals;
    const GoOn go_on = [&] { return signals.go_on(); };
    try {
        const WithoutGil released;
        work(go_on);
    } catch (const Stopped&) {
    } catch (const std::system_error& error) {  // of files; Python adds the system's own words
        PyErr_SetObject(PyExc_OSError, py::make_tuple(error.code().value(), error.what()).ptr());
        throw py::error_already_set();
    }
    signals.raise_if_interrupted();
}

// The bytes of an object that holds them in one run, and holds them still as long as this lives.
class Memory {
   public:
    explicit Memory(const py::object& object) {
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE)) throw py::error_already_set();
    }
    ~Memory() { PyBuffer_Release(&view_); }
    Memory(const Memory&) = delete;
    const u8* data() const { return static_cast<const u8*>(view_.buf); }
    std::size_t size() const { return static_cast<std::size_t>(view_.len); }

   private:
    Py_buffer view_;
};

}  // namespace
