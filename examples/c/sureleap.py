# SPDX-License-Identifier: MIT
#
# The C header for Python: compiles it into a shared library, and makes ctypes structs of its structs. Shared by the
# programs beside it.
import ctypes
import pathlib
import re
import subprocess

include = pathlib.Path(__file__).resolve().parents[2] / "include"
size_t, pointer = ctypes.c_size_t, ctypes.c_void_p
# constraint(of, id, drafted, count) -> address of the words, or None
constraint = ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_uint64, ctypes.POINTER(ctypes.c_int32), size_t)


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("text", ctypes.c_char * 508)]


def structs(*headers):
    """Structs whose members are numbers, pointers, functions and other such structs, by their names without sureleap_."""
    known = {"size_t": size_t, "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64,
             "double": ctypes.c_double, "sureleap_text_end": pointer, "sureleap_constraint": constraint}
    text = "".join((include / "sureleap" / name).read_text() for name in ("c/common.h", "c/round.h", *headers))
    for name, body in re.findall(r"typedef struct sureleap_(\w+) {([^\[]*?)} sureleap_\1;", re.sub(r"//.*", "", text)):
        members = re.findall(r"(\w+)(?: const)?(\*?) (\w+);", body)
        fields = [(member, pointer if star else known[kind]) for kind, star, member in members]
        known[name] = known["sureleap_" + name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return known


class Library:
    """lib.round_begin(...) calls sureleap_round_begin, and raises if it fails. Structs are passed by their address."""

    def __init__(self, compiler, path):
        """Compiles it before, if there is a compiler."""
        if compiler:
            subprocess.run([compiler, "-std=c++20", "-O1", "-shared", "-fPIC", f"-I{include}",
                            pathlib.Path(__file__).with_name("sureleap.cpp"), "-o", path], check=True)
        self.functions = ctypes.CDLL(str(pathlib.Path(path).resolve()))

    def __getattr__(self, name):
        function = getattr(self.functions, "sureleap_" + name)

        def call(*arguments):
            result = function(*(ctypes.byref(a) if isinstance(a, ctypes.Structure) else a for a in arguments))
            if result != 0 and not name.endswith("_init"):
                raise RuntimeError(self.error_of(name, arguments[0]) or f"sureleap_{name} returned {result}")
        return call

    def error_of(self, name, made):
        text = self.functions[f"sureleap_{name.split('_')[0]}_error"]
        text.restype = ctypes.c_char_p
        return text(made).decode() if isinstance(made, pointer) else ""

    def make_round(self, options):
        """The round and its memory, which has to be kept as long."""
        size, made = size_t(), pointer()
        self.round_bytes(options, ctypes.byref(size), None)
        memory = ctypes.create_string_buffer(size.value)
        self.round_create(options, memory, size, ctypes.byref(made), None)
        return made, memory

    def make_llama(self, options):
        """The same of a decoder over llama.cpp."""
        size = self.functions.sureleap_llama_bytes
        size.restype = size_t
        memory, made, error = ctypes.create_string_buffer(size()), pointer(), Error()
        create = self.functions.sureleap_llama_create
        if create(ctypes.byref(options), memory, size_t(len(memory)), ctypes.byref(made), ctypes.byref(error)):
            raise RuntimeError(error.text.decode())
        return made, memory


def rows_of(types, a):
    return types["rows"](data=a.ctypes.data, rows=len(a), columns=a.shape[1], stride=a.shape[1])
