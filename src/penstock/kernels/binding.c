/* Functions that Python calls for kernels that are compiled ahead. A kernel is `int kernel(void *result, const int64_t
   *slots)`: a slot for each scalar, and for each array its address, its shape and its strides. Arguments must have
   exactly the types of a signature, as with numba. Kernels run without the GIL. */
#include <pyconfig.h> /* says whether Python has a GIL: the limited API wants one */
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <Python.h>
#include <numpy/arrayobject.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ARGUMENTS = 32, MOST_AXES = 5, MOST_RESULTS = 8, SCALAR = -1 };

typedef int (*entry_t)(void *, const int64_t *);
typedef struct { char kind; int size, axes, flags; } argument_t; /* axes is SCALAR for a scalar */
typedef struct {
    entry_t entry; /* NULL until the first call with these types; written last, as threads may call without a GIL */
    int arguments, results;
    argument_t argument[MOST_ARGUMENTS];
    argument_t result[MOST_RESULTS];
} variant_t;
typedef struct {
    PyObject *name, *signatures, *find;
    Py_ssize_t variants;
    variant_t variant[];
} kernel_t;

static const int CHECKED = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_WRITEABLE;

static int has_dtype(PyArrayObject *array, char kind, int size) {
    PyArray_Descr *dtype = PyArray_DESCR(array);
    int type = dtype->type_num;
    if (dtype->byteorder == NPY_OPPBYTE) return 0;
    switch (kind) {
    case 'b': return type == NPY_BOOL;
    case 'f': return type == (size == 4 ? NPY_FLOAT : NPY_DOUBLE);
    case 'i': return size == 8 ? type == NPY_LONG || type == NPY_LONGLONG
                               : type == (size == 4 ? NPY_INT : size == 2 ? NPY_SHORT : NPY_BYTE);
    default: return size == 8 ? type == NPY_ULONG || type == NPY_ULONGLONG
                              : type == (size == 4 ? NPY_UINT : size == 2 ? NPY_USHORT : NPY_UBYTE);
    }
}

static int fill_array(const argument_t *wanted, PyObject *given, int64_t *slot) {
    if (!PyArray_Check(given)) return 0;
    /* Arrays with a mask are not what their memory says. */
    if (!PyArray_CheckExact(given) && PyObject_HasAttrString(given, "_mask")) return 0;
    PyArrayObject *array = (PyArrayObject *)given;
    if (PyArray_NDIM(array) != wanted->axes || (PyArray_FLAGS(array) & CHECKED) != wanted->flags) return 0;
    if (!has_dtype(array, wanted->kind, wanted->size)) return 0;
    *slot++ = (int64_t)(intptr_t)PyArray_DATA(array);
    for (int axis = 0; axis < wanted->axes; axis++) *slot++ = PyArray_DIM(array, axis);
    for (int axis = 0; axis < wanted->axes; axis++) *slot++ = PyArray_STRIDE(array, axis);
    return 1;
}

/* Python's own numbers are i8 and f8, or u8 if they are larger than any i8; NumPy's are what they are. */
static int fill_scalar(const argument_t *wanted, PyObject *given, int64_t *slot) {
    if (wanted->kind == 'b') {
        if (!PyBool_Check(given) && !PyArray_IsScalar(given, Bool)) return 0;
        *slot = PyObject_IsTrue(given);
        return 1;
    }
    if (wanted->kind == 'f') {
        int fits = wanted->size == 8 ? PyFloat_Check(given) : PyArray_IsScalar(given, Float);
        if (!fits) return 0;
        double value = PyFloat_AsDouble(given);
        if (wanted->size == 4) {
            float narrow = (float)value;
            memcpy(slot, &narrow, 4);
        } else {
            memcpy(slot, &value, 8);
        }
        return 1;
    }
    if (PyLong_CheckExact(given)) {
        if (wanted->size != 8) return 0;
        int overflow;
        *slot = PyLong_AsLongLongAndOverflow(given, &overflow);
        if (wanted->kind == 'i') return !overflow;
        if (overflow != 1) return 0;
        *slot = (int64_t)PyLong_AsUnsignedLongLong(given);
        if (PyErr_Occurred()) {
            PyErr_Clear();
            return 0;
        }
        return 1;
    }
    int fits = 0;
    switch (wanted->kind == 'i' ? wanted->size : -wanted->size) {
    case 8: fits = PyArray_IsScalar(given, Long) || PyArray_IsScalar(given, LongLong); break;
    case 4: fits = PyArray_IsScalar(given, Int); break;
    case 2: fits = PyArray_IsScalar(given, Short); break;
    case 1: fits = PyArray_IsScalar(given, Byte); break;
    case -8: fits = PyArray_IsScalar(given, ULong) || PyArray_IsScalar(given, ULongLong); break;
    case -4: fits = PyArray_IsScalar(given, UInt); break;
    case -2: fits = PyArray_IsScalar(given, UShort); break;
    case -1: fits = PyArray_IsScalar(given, UByte); break;
    }
    if (!fits) return 0;
    PyObject *number = PyNumber_Index(given);
    if (!number) return -1;
    *slot = wanted->kind == 'i' ? PyLong_AsLongLong(number) : (int64_t)PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    return PyErr_Occurred() ? -1 : 1;
}

/* 1 where the arguments have the types of the variant, 0 where not, -1 with an error. */
static int fill(const variant_t *variant, PyObject *const *given, Py_ssize_t count, int64_t *slot) {
    if (count != variant->arguments) return 0;
    for (int i = 0; i < variant->arguments; i++) {
        const argument_t *wanted = &variant->argument[i];
        int fits = wanted->axes == SCALAR ? fill_scalar(wanted, given[i], slot) : fill_array(wanted, given[i], slot);
        if (fits != 1) return fits;
        slot += wanted->axes == SCALAR ? 1 : 1 + 2 * wanted->axes;
    }
    return 1;
}

static PyObject *boxed(const argument_t *kind, const char *at) {
    int64_t whole = 0;
    double real;
    float narrow;
    switch (kind->kind) {
    case 'b': return PyBool_FromLong(*at);
    case 'f':
        if (kind->size == 8) memcpy(&real, at, 8);
        else { memcpy(&narrow, at, 4); real = narrow; }
        return PyFloat_FromDouble(real);
    case 'i':
        if (kind->size == 4) { int32_t half; memcpy(&half, at, 4); whole = half; }
        else memcpy(&whole, at, 8);
        return PyLong_FromLongLong(whole);
    default:
        memcpy(&whole, at, (size_t)kind->size);
        return PyLong_FromUnsignedLongLong((uint64_t)whole);
    }
}

static PyObject *returned(const variant_t *variant, const char *result) {
    if (variant->results == 0) Py_RETURN_NONE;
    if (variant->results == 1) return boxed(variant->result, result);
    PyObject *tuple = PyTuple_New(variant->results);
    size_t at = 0;
    for (int i = 0; tuple && i < variant->results; i++) {
        size_t size = (size_t)variant->result[i].size;
        at = (at + size - 1) / size * size;
        PyObject *value = boxed(&variant->result[i], result + at);
        if (!value || PyTuple_SetItem(tuple, i, value) < 0) Py_CLEAR(tuple);
        at += size;
    }
    return tuple;
}

/* What an argument is, as signatures write it where they can. */
static PyObject *described(PyObject *given) {
    if (!PyArray_Check(given)) return PyObject_GetAttrString((PyObject *)Py_TYPE(given), "__name__");
    PyArrayObject *array = (PyArrayObject *)given;
    int flags = PyArray_FLAGS(array);
    const char *order = flags & NPY_ARRAY_C_CONTIGUOUS ? "C" : flags & NPY_ARRAY_F_CONTIGUOUS ? "F" : "A";
    return PyUnicode_FromFormat("%s%S[%d%s%s]", flags & NPY_ARRAY_ALIGNED ? "" : "unaligned ", PyArray_DESCR(array),
                                PyArray_NDIM(array), order, flags & NPY_ARRAY_WRITEABLE ? "" : "r");
}

static PyObject *refused(const kernel_t *kernel, PyObject *const *given, Py_ssize_t count) {
    PyObject *got = PyList_New(0), *comma = PyUnicode_FromString(", "), *or = PyUnicode_FromString(") or (");
    PyObject *texts = NULL, *wanted = NULL;
    for (Py_ssize_t i = 0; got && i < count; i++) {
        PyObject *text = described(given[i]);
        if (!text || PyList_Append(got, text) < 0) Py_CLEAR(got);
        Py_XDECREF(text);
    }
    if (got && comma && or) {
        texts = PyUnicode_Join(comma, got);
        wanted = PyUnicode_Join(or, kernel->signatures);
    }
    if (texts && wanted)
        PyErr_Format(PyExc_TypeError, "expected %U to be called with (%U), got (%U)", kernel->name, wanted, texts);
    Py_XDECREF(got), Py_XDECREF(comma), Py_XDECREF(or), Py_XDECREF(texts), Py_XDECREF(wanted);
    return NULL;
}

static int parse(argument_t *into, int most, const char *text);

/* Ask where the code of a variant is. */
static int find(const kernel_t *kernel, variant_t *variant, Py_ssize_t number) {
    PyObject *found = PyObject_CallFunction(kernel->find, "O", PyTuple_GetItem(kernel->signatures, number));
    if (!found) return -1;
    unsigned long long address;
    const char *results;
    int done = PyArg_ParseTuple(found, "Ks", &address, &results) ? 0 : -1;
    if (done == 0) {
        variant->results = parse(variant->result, MOST_RESULTS, results);
        if (variant->results < 0 || !address) {
            PyErr_Format(PyExc_ValueError, "expected an address and results such as 'i8 b1', got %R", found);
            done = -1;
        } else {
            __atomic_store_n(&variant->entry, (entry_t)(uintptr_t)address, __ATOMIC_RELEASE);
        }
    }
    Py_DECREF(found);
    return done;
}

static PyObject *call(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    kernel_t *kernel = PyCapsule_GetPointer(self, NULL);
    int64_t slot[MOST_ARGUMENTS * (1 + 2 * MOST_AXES)];
    char result[MOST_RESULTS * 8];
    for (Py_ssize_t i = 0; i < kernel->variants; i++) {
        variant_t *variant = &kernel->variant[i];
        int fits = fill(variant, given, count, slot);
        if (fits < 0) return NULL;
        if (!fits) continue;
        if (!__atomic_load_n(&variant->entry, __ATOMIC_ACQUIRE) && find(kernel, variant, i) < 0) return NULL;
        int failed;
        Py_BEGIN_ALLOW_THREADS
        failed = variant->entry(result, slot);
        Py_END_ALLOW_THREADS
        if (failed) return PyErr_Format(PyExc_RuntimeError, "expected %U to succeed, got status %d", kernel->name, failed);
        return returned(variant, result);
    }
    return refused(kernel, given, count);
}

/* Read types such as `i8 u1[2Cr]`; returns how many, or -1. */
static int parse(argument_t *into, int most, const char *text) {
    int count = 0;
    while (*text) {
        argument_t *one = &into[count];
        char read_only;
        int length = 0;
        if (count == most || sscanf(text, "%c%1d%n", &one->kind, &one->size, &length) != 2) return -1;
        if (!strchr("biuf", one->kind) || !strchr("1248", text[1])) return -1;
        text += length;
        one->axes = SCALAR, one->flags = 0;
        if (*text == '[') {
            if (sscanf(text, "[%1dC%c%n", &one->axes, &read_only, &length) != 2 || one->axes > MOST_AXES) return -1;
            one->flags = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | (read_only == 'r' ? 0 : NPY_ARRAY_WRITEABLE);
            text += length;
            if (read_only == 'r' && *text++ != ']') return -1;
            if (read_only != 'r' && read_only != ']') return -1;
        }
        count++;
        if (*text == ' ') text++;
        else if (*text) return -1;
    }
    return count;
}

static PyMethodDef CALL = {"kernel", (PyCFunction)(void (*)(void))call, METH_FASTCALL, NULL};

/* bind(name, signatures, find): kernels live as long as the process. */
static PyObject *bind(PyObject *module, PyObject *args) {
    PyObject *name, *signatures, *find_code;
    if (!PyArg_ParseTuple(args, "UO!O", &name, &PyTuple_Type, &signatures, &find_code)) return NULL;
    Py_ssize_t variants = PyTuple_Size(signatures);
    kernel_t *kernel = calloc(1, sizeof *kernel + (size_t)variants * sizeof(variant_t));
    if (!kernel) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < variants; i++) {
        PyObject *signature = PyTuple_GetItem(signatures, i);
        const char *text = PyUnicode_Check(signature) ? PyUnicode_AsUTF8AndSize(signature, NULL) : "?";
        kernel->variant[i].arguments = text ? parse(kernel->variant[i].argument, MOST_ARGUMENTS, text) : -1;
        if (kernel->variant[i].arguments < 0) {
            free(kernel);
            if (text) PyErr_Format(PyExc_ValueError, "expected types such as 'i8 u1[2Cr]', got %R", signature);
            return NULL;
        }
    }
    kernel->name = Py_NewRef(name), kernel->signatures = Py_NewRef(signatures), kernel->find = Py_NewRef(find_code);
    kernel->variants = variants;
    PyObject *capsule = PyCapsule_New(kernel, NULL, NULL);
    PyObject *function = capsule ? PyCFunction_NewEx(&CALL, capsule, name) : NULL;
    Py_XDECREF(capsule);
    return function;
}

static int prepare(PyObject *module) { return PyArray_ImportNumPyAPI(); }

static PyMethodDef METHODS[] = {
    {"bind", bind, METH_VARARGS, "Return a function that checks its arguments and runs machine code."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot SLOTS[] = {
    {Py_mod_exec, prepare},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};
static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "binding", NULL, 0, METHODS, SLOTS, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit_binding(void) { return PyModuleDef_Init(&MODULE); }
