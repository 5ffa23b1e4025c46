# SPDX-License-Identifier: MIT
#
# Speculation in a program of llama-cpp-python, over its own library and context: tokens a second of its plain loop, of
# its prompt lookup, and of sureleap's, which drafts only where that pays. Exit status 77: no llama-cpp-python.
#
#     LLAMA=$(python3 -c 'import llama_cpp, pathlib; print(pathlib.Path(llama_cpp.__file__).parent)')
#     c++ -std=c++20 -O2 -shared -fPIC -I include -I $LLAMA/../include examples/llama/sureleap_llama.cpp \
#         -L $LLAMA/lib -lllama -lggml-base -o libsureleap_llama.so
#     python3 examples/llama/speculative.py ./libsureleap_llama.so MODEL.gguf PROMPT [threads, by default 2]
import ctypes
import pathlib
import sys
import time

try:
    from llama_cpp import Llama
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
except ImportError:
    print("skipped: llama-cpp-python is not installed (pip install llama-cpp-python)")
    sys.exit(77)
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "c"))
from sureleap import Library, structs

library, model, text = sys.argv[1:4]
threads, most = int(sys.argv[4]) if len(sys.argv) > 4 else 2, 200
# Its lookup fails where a text has more tokens than n_batch.
settings = {"n_ctx": 2048, "n_batch": 2048, "n_threads": threads, "n_threads_batch": threads, "verbose": False}
plain = Llama(model, **settings)
looking = Llama(model, draft_model=LlamaPromptLookupDecoding(num_pred_tokens=7), **settings)
prompt = plain.tokenize(text.encode(), special=True)

lib, types = Library(None, library), structs("ext/llama/c/decoder.h")
options, request, array = types["llama_options"](), types["llama_request"](), (ctypes.c_int32 * len(prompt))(*prompt)
lib.llama_options_init(options)
options.target = ctypes.cast(plain.ctx, ctypes.c_void_p)
decoder, memory = lib.make_llama(options)
lib.llama_request_init(request)
request.prompt, request.prompt_count, request.max_new_tokens = ctypes.addressof(array), len(prompt), most
request.target.temperature = 0


def by_llama(llama):
    done = llama.create_completion(prompt, max_tokens=most, temperature=0)
    return done["choices"][0]["text"], done["usage"]["completion_tokens"]


def by_sureleap():
    lib.llama_submit(decoder, request, ctypes.byref(ctypes.c_uint64()))
    events, count, tokens = ctypes.POINTER(types["llama_event"])(), ctypes.c_size_t(1), []
    while count.value > 0:
        lib.llama_step(decoder, ctypes.byref(events), ctypes.byref(count))
        for event in events[:count.value]:
            tokens += (ctypes.c_int32 * event.count).from_address(event.tokens)
    return plain.detokenize(tokens, prev_tokens=prompt).decode(errors="ignore"), len(tokens)


for name, run, *of in ("plain", by_llama, plain), ("its lookup", by_llama, looking), ("sureleap", by_sureleap):
    start = time.perf_counter()
    written, tokens = run(*of)
    print(f"{name:12}{tokens / (time.perf_counter() - start):8.1f} tokens a second: {written[:60]!r}")
