/* Which level of the x86-64 instruction set the processor has: 4 (AVX-512), 3 (AVX2), else 1. The core is built once for each
   level, and the module that is loaded must be one that the processor can run. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *level(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    long found = 1;
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
        __builtin_cpu_supports("fma") && __builtin_cpu_supports("popcnt"))
        found = 3;
    if (found == 3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        found = 4;
#endif
    return PyLong_FromLong(found);
}

static PyMethodDef methods[] = {{"level", level, METH_NOARGS, "The level of the instruction set: 1, 3 or 4."}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_cpu", NULL, 0, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__cpu(void) { return PyModule_Create(&definition); }
