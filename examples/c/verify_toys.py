# SPDX-License-Identifier: MIT
#
# Another language: the C header by ctypes and NumPy. Drafts of a toy model are drawn here and verified against another, 20,000
# in batches of 100 requests. The first token that each round emits has the target's law: counts are within 4.5 standard
# deviations. The structs are read from the header, so they stand in one place. Exit status 77: no NumPy.
#
#     python3 verify_toys.py [C++ compiler] [where the shared library goes]
import ctypes
import pathlib
import re
import subprocess
import sys

try:
    import numpy as np
except ImportError:
    sys.exit(77)

here = pathlib.Path(__file__).resolve().parent
include = here.parents[1] / "include"
compiler, library = sys.argv[1:3] if len(sys.argv) > 2 else ("c++", "./libsureleap_c.so")
subprocess.run([compiler, "-std=c++20", "-O1", "-shared", "-fPIC", f"-I{include}", here / "sureleap.cpp", "-o", library],
               check=True)
lib = ctypes.CDLL(str(pathlib.Path(library).resolve()))
size_t, pointer = ctypes.c_size_t, ctypes.c_void_p

# Structs whose members are numbers, pointers and other such structs.
types = {"size_t": size_t, "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64,
         "double": ctypes.c_double, "sureleap_text_end": pointer, "sureleap_constraint": pointer}
text = "".join((include / "sureleap/c" / name).read_text() for name in ("common.h", "round.h"))
for name, body in re.findall(r"typedef struct sureleap_(\w+) {([^\[]*?)} sureleap_\1;", re.sub(r"//.*", "", text)):
    members = re.findall(r"(\w+)(?: const)?(\*?) (\w+);", body)
    fields = [(member, pointer if star else types[kind]) for kind, star, member in members]
    types[name] = types["sureleap_" + name] = type(name, (ctypes.Structure,), {"_fields_": fields})


def call(name, *arguments):
    by_address = [ctypes.byref(a) if isinstance(a, ctypes.Structure) else a for a in arguments]
    result = getattr(lib, "sureleap_" + name)(*by_address)
    assert result == 0, f"sureleap_{name} returned {result}"


def rows_of(a):
    return types["rows"](data=a.ctypes.data, rows=len(a), columns=a.shape[1], stride=a.shape[1])


R, V = 100, 16
random = np.random.default_rng(7)
p, q = random.normal(0, 1.5, (2, V)).astype(np.float32)  # logits of target and draft, whatever came before
p_rows, q_rows = np.tile(p, (2 * R, 1)), np.tile(q, (R, 1))

options = types["round_options"]()
lib.sureleap_round_options_init(ctypes.byref(options))
options.max_requests, options.block_size, options.vocabulary, options.seed = R, 1, V, 7
size, round_ = size_t(), pointer()
call("round_bytes", options, ctypes.byref(size), None)
memory = np.empty(size.value, np.uint8)
call("round_create", options, pointer(memory.ctypes.data), size, ctypes.byref(round_), None)

requests, verdicts, batch = (types["request"] * R)(), (types["verdict"] * R)(), types["batch"]()
counts, accepted = np.zeros(V), 0
for step in range(200):
    for r, request in enumerate(requests):
        lib.sureleap_request_init(ctypes.byref(request))
        request.id = request.slot = r
        request.position = 2 * step
    call("round_begin", round_, requests, size_t(R), None)
    tokens = np.argmax(q_rows + random.gumbel(size=q_rows.shape), axis=1).astype(np.int32)  # drawn here, from q
    call("round_draft", round_, types["drafts"](positions=1, tokens=tokens.ctypes.data, rows=rows_of(q_rows)))
    call("round_admit", round_, batch)
    call("round_accept", round_, rows_of(p_rows[:batch.rows]))
    call("round_end", round_, verdicts, size_t(R))
    for verdict in verdicts:
        counts[ctypes.cast(verdict.emitted, ctypes.POINTER(ctypes.c_int32))[0]] += 1
        accepted += verdict.accepted

law = np.exp(p) / np.exp(p).sum()
deviation = np.abs(counts - counts.sum() * law) / np.sqrt(counts.sum() * law * (1 - law))
distance = 0.5 * np.abs(counts / counts.sum() - law).sum()
print(f"{accepted} of {200 * R} drafts accepted; total variation from the target {distance:.4f}, largest deviation "
      f"{deviation.max():.1f}")
sys.exit(1 if deviation.max() > 4.5 else 0)
