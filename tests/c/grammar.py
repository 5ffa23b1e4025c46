# SPDX-License-Identifier: MIT
#
# Constrained rounds with a real grammar engine: llguidance's masks for a JSON schema, through the C header. Texts of toy
# models parse and obey the schema, are the same with drafts as without, and drafts are as good as elsewhere, because q
# is masked. Exit status 77: no NumPy, or no llguidance (pip install llguidance). Seconds, most of them the compiler's.
#
#     python3 grammar.py [C++ compiler] [where the shared library goes]
import ctypes
import json
import pathlib
import sys

try:
    import llguidance
    import llguidance.numpy as masks
    import numpy as np
except ImportError:
    sys.exit(77)

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/c"))
import sureleap
from sureleap import size_t

lib = sureleap.Library(*(sys.argv[1:3] if len(sys.argv) > 2 else ("c++", "./libsureleap_c.so")))
types = sureleap.structs()
TARGET_MATCH = 2
R, gamma, most = 12, 4, 60


class Vocabulary:
    """Bytes, some longer pieces, and the end of text: what llguidance asks of a tokenizer."""
    tokens = [bytes([b]) for b in range(32, 127)] + [b'{"', b'":', b'","', b'": ', b'"}', b"true", b"false", b"12", b"na",
                                                     b"me", b"name", b"ok", b'"name"', b"<eos>"]
    eos_token_id = len(tokens) - 1
    bos_token_id = None
    special_token_ids = [eos_token_id]

    def __call__(self, text):
        return [self.tokens.index(bytes([b])) for b in (text.encode() if isinstance(text, str) else text)]


vocabulary = Vocabulary()
V, EOS = len(vocabulary.tokens), vocabulary.eos_token_id
tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(vocabulary))
schema = {"type": "object", "additionalProperties": False, "required": ["name", "ok", "sizes"],
          "properties": {"name": {"type": "string", "maxLength": 8}, "ok": {"type": "boolean"},
                         "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99},
                                   "minItems": 1, "maxItems": 4}}}
grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))

# Logits by the last token; the draft knows most of them.
random = np.random.default_rng(11)
target_logits = random.normal(0, 1.5, (V, V)).astype(np.float32)
draft_logits = (target_logits + random.normal(0, 0.4, (V, V))).astype(np.float32)


class Text:
    """A request. Answers for its constraint: the matcher goes along the drafted tokens, and back."""

    def __init__(self, slot, drafts):
        self.slot, self.drafts, self.tokens, self.done = slot, drafts, [], False
        self.matcher = llguidance.LLMatcher(tokenizer, grammar)
        self.words = masks.allocate_token_bitmask(1, V)
        self.asked = 0
        self.lent = sureleap.constraint(lambda of, id, drafted, count: self.mask([drafted[i] for i in range(count)]))

    def mask(self, drafted):
        self.asked += 1
        assert EOS not in drafted, "asked behind the end of a text"
        if drafted and not self.matcher.consume_tokens(drafted):
            raise AssertionError(f"{drafted} was drafted, and the grammar does not allow it")
        masks.fill_next_token_bitmask(self.matcher, self.words, 0)
        if drafted:
            assert self.matcher.rollback(len(drafted))
        return self.words.ctypes.data

    @property
    def last(self):
        return self.tokens[-1] if self.tokens else 0

    def request(self, to, stops):
        lib.request_init(to)
        to.id, to.slot, to.anchor, to.position = self.slot + 1, self.slot, self.last, len(self.tokens)
        to.seed, to.remaining, to.draft_limit = 100 + self.slot, most - len(self.tokens), gamma if self.drafts else 0
        to.stop_tokens, to.stop_token_count = stops.ctypes.data, 1
        to.constraint = self.lent


def run(drafts):
    options = types["round_options"]()
    lib.round_options_init(options)
    options.rule, options.max_requests, options.block_size, options.vocabulary = TARGET_MATCH, R, gamma, V
    options.constrained = 1
    round_, memory = lib.make_round(options)
    stops = np.array([EOS], np.int32)
    texts = [Text(slot, drafts) for slot in range(R)]
    counts = dict(rounds=0, drafted=0, accepted=0)
    while any(not t.done for t in texts):
        live = [t for t in texts if not t.done]
        requests, batch = (types["request"] * len(live))(), types["batch"]()
        for text, request in zip(live, requests):
            text.request(request, stops)
        lib.round_begin(round_, requests, size_t(len(live)), None)
        last = np.array([t.last for t in live])
        for _ in range(gamma if drafts else 0):
            rows, drawn = draft_logits[last], np.full(len(live), -1, np.int32)
            lib.round_draft(round_, types["drafts"](positions=1, rows=sureleap.rows_of(types, rows),
                                                    drawn=drawn.ctypes.data))
            last = np.where(drawn >= 0, drawn, 0)
            counts.setdefault("kept", []).append(rows)  # dense logits in float stay as they are
        lib.round_admit(round_, batch)
        scored = np.ctypeslib.as_array(ctypes.cast(batch.tokens, ctypes.POINTER(ctypes.c_int32)), (batch.rows,))
        rows = np.ascontiguousarray(target_logits[scored])
        lib.round_accept(round_, sureleap.rows_of(types, rows))
        verdicts = (types["verdict"] * len(live))()
        lib.round_end(round_, verdicts, size_t(len(live)))
        counts["kept"] = []
        for text, verdict in zip(live, verdicts):
            assert verdict.outcome == 0, verdict.outcome
            emitted = list(ctypes.cast(verdict.emitted, ctypes.POINTER(ctypes.c_int32))[:verdict.emitted_count])
            said = [x for x in emitted if x != EOS]
            assert text.matcher.consume_tokens(said), f"{said} was emitted, and the grammar does not allow it"
            text.tokens += emitted
            text.done = verdict.finished != 0
            counts["rounds"] += 1
            counts["drafted"] += verdict.drafted
            counts["accepted"] += verdict.accepted
    return texts, counts


plain, without = run(drafts=False)
texts, counts = run(drafts=True)
assert [t.tokens for t in texts] == [t.tokens for t in plain], "texts with drafts are others"
whole = 0
for text in texts:
    if text.tokens[-1] != EOS:
        continue
    value = json.loads(b"".join(vocabulary.tokens[x] for x in text.tokens[:-1]))
    assert set(value) == set(schema["required"]) and isinstance(value["ok"], bool), value
    whole += 1
print(f"{whole} of {R} texts ended, {counts['rounds']} rounds in place of {without['rounds']}, "
      f"{counts['accepted']} of {counts['drafted']} drafts accepted")
assert whole >= R // 2 and counts["accepted"] > counts["drafted"] // 3
