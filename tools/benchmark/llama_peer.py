"""The peer: llama.cpp through llama-cpp-python, in a process of its own for each figure.

It runs at its best: built for the machine, flash attention on or off as is quicker, f16 KV, and in
`serve` what llama-server does for its slots: continuous batching, and of a slot's last prompt what the
next one begins with. Prints one line of JSON. tools/benchmark/peers.py calls it, in the peer's own venv.
"""
import argparse
import ctypes
import json
import time

import llama_cpp
import numpy

UBATCH = 512  # llama.cpp's default
BATCH = 2048
SLOT_TOKENS = 1024


def silent():
    callback = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(callback, ctypes.c_void_p(0))
    return callback  # lives as long as it is called


class Peer:
    def __init__(self, args, context, sequences=1):
        self.silence = silent()
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(args.model.encode(), llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = context, BATCH, UBATCH, sequences
        params.n_threads = params.n_threads_batch = args.threads
        params.flash_attn_type = 1 if args.flash else 0
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit(f"llama.cpp makes no context of {context} tokens for {args.model}")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(self.vocab)

    def feed(self, ids):
        """The next tokens of sequence 0."""
        array = (llama_cpp.llama_token * len(ids))(*ids)
        if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(array, len(ids))) != 0:
            raise SystemExit("llama.cpp decodes nothing")
        llama_cpp.llama_synchronize(self.context)

    def clear(self):
        llama_cpp.llama_memory_clear(self.memory, True)

    def tokens(self, text):
        data = text.encode()
        ids = (llama_cpp.llama_token * (len(data) + 8))()
        count = llama_cpp.llama_tokenize(self.vocab, data, len(data), ids, len(ids), True, True)
        return list(ids[:count])


def some_ids(count):
    return [17 + 7 * i % 250 for i in range(count)]


def measure_decode(args):
    peer = Peer(args, args.tokens + 256)
    peer.feed(some_ids(4))
    begin = time.perf_counter()
    for _ in range(args.tokens):
        peer.feed([17])
    return {"tokens_per_second": args.tokens / (time.perf_counter() - begin)}


def measure_prompt(args):
    peer = Peer(args, args.tokens + 256)
    ids = some_ids(args.tokens)
    peer.feed(ids[:64])  # its buffers are made with the context; this touches them
    peer.clear()
    begin = time.perf_counter()
    for at in range(0, len(ids), UBATCH):
        last = time.perf_counter()
        peer.feed(ids[at:at + UBATCH])
    end = time.perf_counter()
    return {"tokens_per_second": len(ids) / (end - begin), "last_tokens_per_second": len(ids[at:]) / (end - last)}


class Slot:
    def __init__(self, number):
        self.number = number
        self.kept = []  # tokens whose KV is there
        self.todo = []
        self.left = 0  # tokens to generate
        self.token = 0
        self.begin = 0.0


def take(peer, slot, ids, args):
    same = 0
    while same < min(len(slot.kept), len(ids) - 1) and slot.kept[same] == ids[same]:
        same += 1
    llama_cpp.llama_memory_seq_rm(peer.memory, slot.number, same, -1)
    slot.kept, slot.todo, slot.left = ids[:same], ids[same:], args.tokens
    slot.begin = time.perf_counter()


def serve_step(peer, slots, batch):
    """One llama_decode: a token of each slot that generates, then prompts as far as the batch goes."""
    count, wanted = 0, {}

    def add(slot, token, wants):
        nonlocal count
        batch.token[count], batch.pos[count] = token, len(slot.kept)
        batch.n_seq_id[count], batch.seq_id[count][0], batch.logits[count] = 1, slot.number, int(wants)
        slot.kept.append(token)
        if wants:
            wanted[slot.number] = count
        count += 1

    for slot in slots:
        if slot.left > 0 and not slot.todo:
            add(slot, slot.token, True)
    for slot in slots:
        while slot.left > 0 and slot.todo and count < BATCH:
            add(slot, slot.todo.pop(0), len(slot.todo) == 0)
    batch.n_tokens = count
    if llama_cpp.llama_decode(peer.context, batch) != 0:
        raise SystemExit("llama.cpp decodes nothing")
    return wanted


def measure_serve(args):
    """A closed loop of prompts (JSON list of texts in a file), so many at a time, greedy."""
    with open(args.prompts, encoding="utf-8") as file:
        texts = json.load(file)
    peer = Peer(args, SLOT_TOKENS * args.streams, args.streams)
    prompts = [peer.tokens(text) for text in texts]
    peer.feed(some_ids(64))
    peer.clear()
    slots = [Slot(number) for number in range(args.streams)]
    batch = llama_cpp.llama_batch_init(BATCH, 0, 1)
    waiting, first, generated, free = list(prompts), [], 0, set(range(args.streams))
    # All of a wave arrive at once, and wait for one another as in a server.
    begin = time.perf_counter()
    while waiting or len(free) < len(slots):
        for number in sorted(free):
            if waiting:
                take(peer, slots[number], waiting.pop(0), args)
                free.discard(number)
        wanted = serve_step(peer, slots, batch)
        for number, row in wanted.items():
            slot = slots[number]
            logits = llama_cpp.llama_get_logits_ith(peer.context, row)
            slot.token = int(numpy.ctypeslib.as_array(logits, (peer.vocab_size,)).argmax())
            if slot.left == args.tokens:
                first.append(time.perf_counter() - slot.begin)
            slot.left -= 1
            generated += 1
            if slot.left == 0:
                free.add(number)
    return {"tokens_per_second": generated / (time.perf_counter() - begin),
            "first_token_seconds": sum(first) / len(first), "prompt_tokens": sum(map(len, prompts)) / len(prompts)}


def requantise(args):
    """The model in another type, by llama.cpp's own quantiser."""
    keep = silent()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{args.type}")
    params.allow_requantize = True
    params.nthread = args.threads
    done = llama_cpp.llama_model_quantize(args.model.encode(), args.output.encode(), ctypes.byref(params))
    if done != 0:
        raise SystemExit(f"llama.cpp cannot write {args.model} as {args.type}")
    del keep
    return {"output": args.output}


VERBS = {"decode": measure_decode, "prompt": measure_prompt, "serve": measure_serve, "requantise": requantise}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=VERBS)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--flash", action="store_true")
    parser.add_argument("--prompts")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--type")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    print(json.dumps(VERBS[arguments.verb](arguments)))
