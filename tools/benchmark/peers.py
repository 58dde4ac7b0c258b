"""Plimsoll beside llama.cpp: decode and prefill on the same file, in the same run, interleaved.

Each figure is a process of its own, so that neither engine warms the other's caches; rounds
alternate, and the rows give the median of each side and of the ratios within a round. The peer
runs at its own best: native build, flash attention on or off (the better median is kept), f16 KV.
Run by `tools/bench peers`.
"""
import argparse
import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("PLIMSOLL_CACHE", pathlib.Path.home() / ".cache/plimsoll"))
SMOLLM2 = CACHE / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA = CACHE / "models/gemma-3-270m-q4_k_m.gguf"
# Test, tokens, and the least ratio to the peer by number of threads; what has none is only reported.
TESTS = {SMOLLM2: (("decode", 128, {1: 1.0}), ("prefill", 512, {1: 1.0})),
         GEMMA: (("decode", 128, {1: 1.5, 2: 1.5}), ("prefill", 512, {}))}
OTHER_TESTS = (("decode", 128, {}), ("prefill", 512, {}))


def run_peer(model, threads, test, tokens, flash):
    """One measurement of llama.cpp, as llama-bench makes it: a warm-up, then tokens per second."""
    import llama_cpp

    silent = llama_cpp.llama_log_callback(lambda *_: None)  # named, so that it lives as long as it is called
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    handle = llama_cpp.llama_model_load_from_file(str(model).encode(), llama_cpp.llama_model_default_params())
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = 1024
    params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = threads
    if hasattr(params, "flash_attn_type"):
        params.flash_attn_type = 1 if flash else 0
    else:
        params.flash_attn = flash
    context = llama_cpp.llama_init_from_model(handle, params)
    memory = llama_cpp.llama_get_memory(context)
    ids = (llama_cpp.llama_token * 512)(*[17 + 7 * i % 40000 for i in range(512)])

    def prefill():
        llama_cpp.llama_memory_clear(memory, True)
        llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(ids, tokens))
        llama_cpp.llama_synchronize(context)

    def decode(count):
        llama_cpp.llama_memory_clear(memory, True)
        one = (llama_cpp.llama_token * 1)(ids[0])
        for _ in range(count):
            llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(one, 1))
            llama_cpp.llama_synchronize(context)

    if test == "prefill":
        prefill()
    else:
        decode(4)
    start = time.perf_counter()
    prefill() if test == "prefill" else decode(tokens)
    print(tokens / (time.perf_counter() - start))


def child(command):
    out = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if out.returncode != 0:
        sys.exit(f"bench: {' '.join(map(str, command))} failed:\n{out.stderr[-2000:]}")
    return out.stdout


def peer(model, threads, test, tokens, flash):
    return float(child([sys.executable, __file__, "--peer", test, "--model", str(model), "--threads", str(threads),
                        "--tokens", str(tokens), *(["--flash"] if flash else [])]))


def ours(model, threads, test, tokens):
    out = child([ROOT / "build/release/engine_bench", "--model", model, "--threads", str(threads),
                 "--test", test, "--tokens", str(tokens), "--json"])
    return json.loads(out)["tokens_per_second"]


def cpu():
    for line in open("/proc/cpuinfo"):
        if line.startswith("flags"):
            flags = line.split()
            kind = "AVX-512 VNNI" if "avx512_vnni" in flags else "AVX2" if "avx2" in flags else "baseline"
            return f"{os.cpu_count()} CPUs, {kind}"
    return f"{os.cpu_count()} CPUs"


def compare(model, rounds):
    rows = []
    for test, tokens, targets in TESTS.get(model, OTHER_TESTS):
        for threads in (1, 2):
            if threads > os.cpu_count():
                continue
            flash = max((False, True), key=lambda f: peer(model, threads, test, tokens, f))
            a, b = [], []
            for _ in range(rounds):
                a.append(ours(model, threads, test, tokens))
                b.append(peer(model, threads, test, tokens, flash))
            rows.append({"model": model.name, "test": test, "tokens": tokens, "threads": threads, "flash_attention": flash,
                         "plimsoll": statistics.median(a), "llama.cpp": statistics.median(b),
                         "ratio": statistics.median(x / y for x, y in zip(a, b)),
                         "target": targets.get(threads)})
            print(f"{model.name}: {test} {threads} threads done", file=sys.stderr)
    return rows


def main():
    parser = argparse.ArgumentParser(prog="tools/bench peers")
    parser.add_argument("--model", type=pathlib.Path, action="append",
                        help="default: SmolLM2 and Gemma 3 270M, as tools/fetch-model fetches them")
    parser.add_argument("--quick", action="store_true", help="3 rounds instead of 7")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peer", choices=("decode", "prefill"), help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--tokens", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--flash", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return run_peer(args.model[0], args.threads, args.peer, args.tokens, args.flash)
    rows = []
    for model in args.model or list(TESTS):
        if not model.exists():
            sys.exit(f"bench: {model} does not exist; tools/fetch-test-data fetches the default models")
        rows += compare(model, 3 if args.quick else 7)
    missed = [row for row in rows if row["target"] and row["ratio"] < row["target"]]
    if args.json:
        print(json.dumps({"machine": cpu(), "rows": rows}, indent=1))
    else:
        print(f"{cpu()}; tokens/s, medians; ratio is the median of interleaved pairs")
        print(f"{'model':<36}{'test':<14}{'threads':>8}{'Plimsoll':>12}{'llama.cpp':>12}{'ratio':>8}{'target':>8}")
        for row in rows:
            target = f"{row['target']:.2f}" if row["target"] else "-"
            print(f"{row['model']:<36}{row['test'] + ' ' + str(row['tokens']):<14}{row['threads']:>8}{row['plimsoll']:>12.1f}"
                  f"{row['llama.cpp']:>12.1f}{row['ratio']:>8.2f}{target:>8}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
