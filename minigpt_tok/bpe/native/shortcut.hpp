// The built-in function that `Tokenizer.encode` becomes.
#pragma once

#include <pybind11/pybind11.h>

#include "python.hpp"

namespace {

// `encode(text)` without a detour: a built-in function that does just this, and hands every other call to `slow`, the method
// of the same name of a FastEncoder. This is the object that it is bound to.
template <class Bound>
struct Shortcut {
    PyObject_HEAD
    Bound* bound;
    PyObject *owner, *slow;  // of `bound`

    static PyObject* call(PyObject* object, PyObject* const* args, Py_ssize_t count, PyObject* names) {
        auto* self = reinterpret_cast<Shortcut*>(object);
        if (count == 1 && !names && PyUnicode_Check(args[0])) {
            try {
                return self->bound->encode(args[0]).release().ptr();
            } catch (py::error_already_set& error) {
                error.restore();
                return nullptr;
            } catch (const std::bad_alloc&) {
                return PyErr_NoMemory();
            } catch (const std::exception&) {
                // falls through: the other way says what is wrong with the text
            }
        }
        return PyObject_Vectorcall(self->slow, args, static_cast<std::size_t>(count), names);
    }

    // Pickled, as `tok.encode` is on its way to a worker process, the function is the method `slow`: Python pickles a built-in
    // function as an attribute of what it is bound to, and that is what `slow` is bound to.
    static PyObject* reduce(PyObject* object, PyObject*) {
        PyObject* get = PyDict_GetItemString(PyEval_GetBuiltins(), "getattr");  // borrowed
        return get ? Py_BuildValue("O(Os)", get, reinterpret_cast<Shortcut*>(object)->slow, "__self__") : nullptr;
    }

    static int traverse(PyObject* object, visitproc visit, void* arg) {
        auto* self = reinterpret_cast<Shortcut*>(object);
        Py_VISIT(Py_TYPE(object));
        Py_VISIT(self->owner);
        Py_VISIT(self->slow);
        return 0;
    }
    static void dealloc(PyObject* object) {
        auto* self = reinterpret_cast<Shortcut*>(object);
        PyTypeObject* type = Py_TYPE(object);
        PyObject_GC_UnTrack(object);
        Py_XDECREF(self->owner);
        Py_XDECREF(self->slow);
        type->tp_free(object);
        Py_DECREF(type);
    }

    static PyTypeObject* type() {
        static PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
        static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(&dealloc)},
                                      {Py_tp_traverse, reinterpret_cast<void*>(&traverse)},
                                      {Py_tp_methods, methods},
                                      {0, nullptr}};
        static PyType_Spec spec = {"minigpt_tok.bpe.native.Shortcut", sizeof(Shortcut), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
        static PyObject* const made = PyType_FromSpec(&spec);
        if (!made) throw py::error_already_set();
        return reinterpret_cast<PyTypeObject*>(made);
    }

    static py::object make(const py::object& owner, const py::object& slow) {
        static PyMethodDef method = {"encode", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&call)),
                                     METH_FASTCALL | METH_KEYWORDS,
                                     "encode(text, *, allowed_special=(), disallowed_special=(), add_special_tokens=False)\n--\n\n"
                                     "The ids of a text; see Tokenizer.encode."};
        const auto object = py::reinterpret_steal<py::object>(PyType_GenericAlloc(type(), 0));
        if (!object) throw py::error_already_set();
        auto* self = reinterpret_cast<Shortcut*>(object.ptr());
        self->bound = owner.cast<Bound*>();
        self->owner = owner.inc_ref().ptr();
        self->slow = slow.inc_ref().ptr();
        return py::reinterpret_steal<py::object>(PyCFunction_New(&method, object.ptr()));
    }
};

}  // namespace
