# SPDX-License-Identifier: MIT
#
# Another language: the C header by ctypes and NumPy. Drafts of a toy model are drawn here and verified against another, 20,000
# in batches of 100 requests. The first token that each round emits has the target's law: counts are within 4.5 standard
# deviations. The structs are read from the header, so they stand in one place. Exit status 77: no NumPy.
#
#     python3 verify_toys.py [C++ compiler] [where the shared library goes]
import ctypes
import sys

try:
    import numpy as np
except ImportError:
    sys.exit(77)

sys.dont_write_bytecode = True
import sureleap
from sureleap import size_t

lib = sureleap.Library(*(sys.argv[1:3] if len(sys.argv) > 2 else ("c++", "./libsureleap_c.so")))
types = sureleap.structs()


def rows_of(a):
    return sureleap.rows_of(types, a)


R, V = 100, 16
random = np.random.default_rng(7)
p, q = random.normal(0, 1.5, (2, V)).astype(np.float32)  # logits of target and draft, whatever came before
p_rows, q_rows = np.tile(p, (2 * R, 1)), np.tile(q, (R, 1))

options = types["round_options"]()
lib.round_options_init(options)
options.max_requests, options.block_size, options.vocabulary, options.seed = R, 1, V, 7
round_, memory = lib.make_round(options)

requests, verdicts, batch = (types["request"] * R)(), (types["verdict"] * R)(), types["batch"]()
counts, accepted = np.zeros(V), 0
for step in range(200):
    for r, request in enumerate(requests):
        lib.request_init(request)
        request.id = request.slot = r
        request.position = 2 * step
    lib.round_begin(round_, requests, size_t(R), None)
    tokens = np.argmax(q_rows + random.gumbel(size=q_rows.shape), axis=1).astype(np.int32)  # drawn here, from q
    lib.round_draft(round_, types["drafts"](positions=1, tokens=tokens.ctypes.data, rows=rows_of(q_rows)))
    lib.round_admit(round_, batch)
    lib.round_accept(round_, rows_of(p_rows[:batch.rows]))
    lib.round_end(round_, verdicts, size_t(R))
    for verdict in verdicts:
        counts[ctypes.cast(verdict.emitted, ctypes.POINTER(ctypes.c_int32))[0]] += 1
        accepted += verdict.accepted

law = np.exp(p) / np.exp(p).sum()
deviation = np.abs(counts - counts.sum() * law) / np.sqrt(counts.sum() * law * (1 - law))
distance = 0.5 * np.abs(counts / counts.sum() - law).sum()
print(f"{accepted} of {200 * R} drafts accepted; total variation from the target {distance:.4f}, largest deviation "
      f"{deviation.max():.1f}")
sys.exit(1 if deviation.max() > 4.5 else 0)
