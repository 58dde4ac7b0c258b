"""Bench rows: what `tools/bench peers` measures, a function a group: rounds in, rows out.

Each figure is a process of its own; the sides alternate within a round. A row has the medians of both
sides, the median of the ratios within a round, the target, and the share of what the machine could do
at most, measured beside it.
"""
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time

from served import BUILD, ROOT, BusyLoops, Failed, LlamaServer, Plimsoll, closed_loop, memory_of, stream

CACHE = pathlib.Path(os.environ.get("PLIMSOLL_CACHE", pathlib.Path.home() / ".cache/plimsoll"))
MADE = CACHE / "peers/models"
SMOLLM2 = CACHE / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA = CACHE / "models/gemma-3-270m-q4_k_m.gguf"
# Rows of 576 have no blocks of 256: K-quants are measured on random weights in this shape.
WIDE = {"layers": 16, "hidden": 1024, "heads": 16, "kv-heads": 4, "head-dim": 64, "ffn": 2816, "context": 4096}
# File, least ratio of decode and of prefill; what has none is only reported.
FILES = (("SmolLM2 Q4_1", 2.3, 4.0), ("SmolLM2 Q4_0", 1.35, 2.5), ("SmolLM2 Q5_0", None, 2.0),
         ("SmolLM2 Q8_0", None, 2.0), ("Gemma 3 270M Q4_K_M", 1.5, None), ("wide Q4_K", 1.35, 2.0),
         ("wide Q6_K", None, 2.0), ("wide F16", None, 1.2), ("wide BF16", None, 1.2))
# The other families, in that shape; with --quick they are left out.
FAMILIES = (("qwen2 Q4_0", None, None), ("qwen3 Q4_0", None, None))
SHARE_OF_BANDWIDTH = 0.85  # of Q4_1's decode with one thread
# Tokens/s of the peer on an AVX2 machine: one below 0.8 of it is no measure (file, test, threads).
PEER_ON_AVX2 = {("SmolLM2 Q4_1", "decode", 1): 66.8, ("SmolLM2 Q4_1", "decode", 2): 95.2,
                ("SmolLM2 Q4_1", "prefill", 1): 128.8, ("SmolLM2 Q4_1", "prefill", 2): 241.0,
                ("SmolLM2 Q4_0", "decode", 1): 118.3, ("SmolLM2 Q4_0", "decode", 2): 147.0,
                ("SmolLM2 Q4_0", "prefill", 1): 250.7, ("SmolLM2 Q4_0", "prefill", 2): 431.9,
                ("Gemma 3 270M Q4_K_M", "decode", 1): 36.4, ("Gemma 3 270M Q4_K_M", "decode", 2): 58.9,
                ("Gemma 3 270M Q4_K_M", "prefill", 1): 203.0, ("Gemma 3 270M Q4_K_M", "prefill", 2): 344.8}
PEER_LEAST = 0.8
CHILD_SECONDS = 300


def child(command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=CHILD_SECONDS,
                          **options)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def cpu_kind():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = next((line.split() for line in file if line.startswith("flags")), [])
    return "AVX-512 VNNI" if "avx512_vnni" in flags else "AVX2" if "avx2" in flags else "baseline"


class Bench:
    """What all groups share: the peer's Python, how many rounds, when to stop."""

    def __init__(self, options):
        self.quick = options.quick
        self.rounds = options.rounds or (3 if options.quick else 7)
        self.llama_server, self.llama_bench = options.llama_server, options.llama_bench
        self.end = time.monotonic() + 60 * (options.minutes or (18 if options.quick else 600))
        self.cpus = len(os.sched_getaffinity(0))
        self.threads = [count for count in (1, 2) if count <= self.cpus]
        self.kind = cpu_kind()
        self.flash_of = {}
        self.files = [one for one in FILES + FAMILIES if one[0] in options.file] if options.file else (
            FILES if options.quick else FILES + FAMILIES)

    def each_round(self, rounds=None):
        """Rounds until there are enough, or no time is left."""
        for done in range(rounds or self.rounds):
            if done > 0 and time.monotonic() > self.end:
                return
            yield done

    # --- files ---

    def file(self, name):
        family, kind = name.rsplit(" ", 1)
        if name == "SmolLM2 Q4_1":
            path = SMOLLM2
        elif name == "Gemma 3 270M Q4_K_M":
            path = GEMMA
        else:
            path = MADE / f"{family}-{kind}.gguf"
        if path in (SMOLLM2, GEMMA) and not path.exists():
            raise Failed(f"{path} does not exist; tools/fetch-test-data fetches it")
        if not path.exists():
            self.make(family, kind, path)
        with open(path, "rb") as file:  # into the page cache
            while file.read(1 << 24):
                pass
        return path

    def make(self, family, kind, path):
        MADE.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        print(f"bench: writing {path.name}", file=sys.stderr)
        if family == "SmolLM2":
            self.llama("requantise", SMOLLM2, "--type", kind, "--output", part, "--threads", self.cpus)
        else:
            shape = [word for name, value in WIDE.items() for word in (f"--{name}", value)]
            if family != "wide":
                shape += ["--architecture", family]
            child([BUILD / "tiny_model", "--type", kind, "--vocab-from", self.file("SmolLM2 Q4_1"), "--output", part,
                   *shape])
        part.rename(path)

    # --- the two sides, and the limits ---

    def llama(self, verb, model, *words):
        return json.loads(child([sys.executable, "-B", ROOT / "tools/benchmark/llama_peer.py", verb, "--model", model, *words]))

    def flash(self, path, tokens=256):
        """Whether flash attention is quicker for the peer, with this file and length."""
        if (path, tokens) not in self.flash_of:
            rate = {on: self.llama("prompt", path, "--threads", self.cpus, "--tokens", tokens,
                                   *(["--flash"] if on else []))["tokens_per_second"] for on in (False, True)}
            self.flash_of[path, tokens] = ["--flash"] if rate[True] > rate[False] else []
        return self.flash_of[path, tokens]

    def peer(self, verb, path, threads, tokens):
        if self.llama_bench and verb in ("decode", "prompt") and tokens <= 512:
            counts = ["-p", 0, "-n", tokens] if verb == "decode" else ["-p", tokens, "-n", 0]
            flash = 1 if self.flash(path) else 0
            (row,) = json.loads(child([self.llama_bench, "-m", path, "-t", threads, "-r", 1, "-fa", flash, *counts,
                                       "-o", "json"]))
            return {"tokens_per_second": row["avg_ts"]}
        flash = self.flash(path, 1024 if tokens > 512 else 256)
        return self.llama(verb, path, "--threads", threads, "--tokens", tokens, *flash)

    def ours(self, test, path, threads, tokens):
        return json.loads(child([BUILD / "engine_bench", "--model", path, "--threads", threads, "--test", test,
                                 "--tokens", tokens, "--json"]))

    def limits(self, threads):
        return json.loads(child([BUILD / "limits_bench", threads]))


def row(group, what, unit, pairs, target=None, **more):
    """Of pairs (ours, the other's); the other's may be None. A target is of the ratio, at least."""
    other = [b for _, b in pairs if b is not None]
    made = {"group": group, "what": what, "unit": unit, "plimsoll": statistics.median(a for a, _ in pairs),
            "peer": statistics.median(other) if other else None,
            "ratio": statistics.median(a / b for a, b in pairs) if other else None, "target": target,
            "rounds": len(pairs), "share": None, "note": "", **more}
    made.setdefault("verdict", "reported" if target is None else "met" if made["ratio"] >= target else "missed")
    return made


def bounded(group, what, unit, values, at_most, **more):
    """Of figures that are to be small."""
    value = statistics.median(values)
    return {"group": group, "what": what, "unit": unit, "plimsoll": value, "peer": None, "ratio": None, "target": at_most,
            "rounds": len(values), "share": None, "note": "at most", "verdict": "met" if value <= at_most else "missed",
            **more}


def not_measured(group, what, why):
    return {"group": group, "what": what, "unit": "", "plimsoll": None, "peer": None, "ratio": None, "target": None,
            "rounds": 0, "share": None, "note": why, "verdict": "not measured"}


def share_of_peak(done, seconds_per_token, context, limits):
    """The least time for the multiply-adds of a token that attends to so many, by what it took."""
    is_float = any(word in done["file"] for word in ("F16", "F32"))
    peak = limits["f32_products_per_second" if is_float else "int8_products_per_second"]
    least = done["products_per_token"] / peak + done["attention_products"] * context / limits["f32_products_per_second"]
    return least / seconds_per_token


# --- engine -----------------------------------------------------------------------------------------

def engine_rows(bench):
    for name, decode_target, prefill_target in bench.files:
        path = bench.file(name)
        decoded = 64 if bench.quick else 128
        for threads in bench.threads:
            of = f"{name}, {threads} thread{'s' if threads > 1 else ''}"
            if time.monotonic() > bench.end:
                yield {**not_measured("engine", of, "no time was left"), "verdict": "failed"}
                continue
            decode, prefill, read_share, peak_share = [], [], [], []
            for _ in bench.each_round():
                limits = bench.limits(threads)
                ours = bench.ours("decode", path, threads, decoded)
                decode.append((ours["tokens_per_second"],
                               bench.peer("decode", path, threads, decoded)["tokens_per_second"]))
                read_share.append(ours["bytes_per_token"] * ours["tokens_per_second"] / limits["read_bytes_per_second"])
                ours = {**bench.ours("prompt", path, threads, 512), "file": name}
                prefill.append((ours["tokens_per_second"],
                                bench.peer("prompt", path, threads, 512)["tokens_per_second"]))
                peak_share.append(share_of_peak(ours, 1 / ours["tokens_per_second"], 256, limits))
            made = row("engine", f"decode {of}", "tok/s", decode, decode_target, share=statistics.median(read_share))
            if name == "SmolLM2 Q4_1" and threads == 1:
                made["note"] = f"and {SHARE_OF_BANDWIDTH:.0%} of the bandwidth"
                if made["share"] < SHARE_OF_BANDWIDTH:
                    made["verdict"] = "missed"
            yield void_where_slow(bench, made, (name, "decode", threads))
            made = row("engine", f"prefill 512 {of}", "tok/s", prefill, prefill_target,
                       share=statistics.median(peak_share))
            yield void_where_slow(bench, made, (name, "prefill", threads))
    if bench.kind != "AVX2":
        yield not_measured("engine", "an AVX2 machine", f"this one has {bench.kind}")
    if bench.kind != "AVX-512 VNNI":
        yield not_measured("engine", "an AVX-512 VNNI machine", f"this one has {bench.kind}")


def void_where_slow(bench, made, key):
    known = PEER_ON_AVX2.get(key)
    if bench.kind == "AVX2" and known and made["peer"] < PEER_LEAST * known:
        made.update(verdict="void", note=f"the peer has made {known:g} on such a CPU")
    return made


def prompt_rows(bench):
    name, tokens = "SmolLM2 Q4_1", 4096
    path = bench.file(name)
    for threads in bench.threads[-1:] if bench.quick else bench.threads:
        whole, last, shares = [], [], []
        for _ in bench.each_round():
            limits = bench.limits(threads)
            ours = {**bench.ours("prompt", path, threads, tokens), "file": name}
            peer = bench.peer("prompt", path, threads, tokens)
            whole.append((ours["tokens_per_second"], peer["tokens_per_second"]))
            last.append((ours["last_tokens_per_second"], peer["last_tokens_per_second"]))
            shares.append(share_of_peak(ours, 1 / ours["last_tokens_per_second"], tokens - 256, limits))
        yield row("prompt", f"prefill {tokens:,}, {threads} threads", "tok/s", whole, 2.0)
        yield row("prompt", f"its last 512 tokens, {threads} threads", "tok/s", last, 2.0,
                  share=statistics.median(shares))


# --- server -----------------------------------------------------------------------------------------

WORDS = ("the tide of a harbour ship with cargo and crew under sail over deep water near land when wind turns north "
         "while every line on its hull says how much load is safe before night").split()


def text_of(seed, words):
    pick = random.Random(seed)
    return " ".join(pick.choice(WORDS) for _ in range(words))


def serve_peer(bench, path, prompts, tokens, streams):
    if bench.llama_server:
        with LlamaServer(bench.llama_server, path, bench.cpus, streams) as server:
            return closed_loop(server.port, prompts, tokens, streams)
    MADE.mkdir(parents=True, exist_ok=True)
    file = MADE / "prompts.json"
    file.write_text(json.dumps(prompts))
    return bench.llama("serve", path, "--threads", bench.cpus, "--tokens", tokens, "--streams", streams, "--prompts",
                       file, *bench.flash(path))


def server_rounds(bench, what):
    """The peer takes 40 s for two waves behind a shared prefix."""
    if not bench.quick:
        return bench.rounds
    return min(bench.rounds, 2 if what == "distinct prompts" else 1)


def server_rows(bench):
    streams, tokens = 16, 64
    by = "llama-server" if bench.llama_server else "the package in process, as llama-server schedules"
    # 200 tokens each; a prefix of 400 and 30 of their own, in two waves, the second of which finds it in each slot.
    distinct = [text_of(f"distinct {i}", 195) for i in range(streams)]
    shared = [text_of("shared", 392) + f" {i}: " + text_of(i, 28) for i in range(2 * streams)]
    for name, what, prompts, target, first_target in (
            ("SmolLM2 Q4_1", "distinct prompts", distinct, 5.0, 0.25),
            ("SmolLM2 Q4_0", "distinct prompts", distinct, 2.5, 0.25),
            ("SmolLM2 Q4_1", "a shared prefix", shared, 4.0, None)):
        path = bench.file(name)
        rates, firsts, length = [], [], 0
        for _ in bench.each_round(server_rounds(bench, what)):
            with Plimsoll(path, "--tp", 1) as server:
                ours = closed_loop(server.port, prompts, tokens, streams)
            peer = serve_peer(bench, path, prompts, tokens, streams)
            rates.append((ours["tokens_per_second"], peer["tokens_per_second"]))
            firsts.append((ours["first_token_seconds"], peer["first_token_seconds"]))
            length = ours["prompt_tokens"]
        of = f"{streams} streams, {what} of {length:.0f} tokens, {name}"
        yield row("server", of, "tok/s", rates, target, note=f"beside {by}")
        made = row("server", f"first token, {of}", "s", firsts, note="ratio at most")
        if first_target:
            made.update(target=first_target, verdict="met" if made["ratio"] <= first_target else "missed")
        yield made


# --- layouts ----------------------------------------------------------------------------------------

def one_stream(server, tokens):
    """Tokens/s of a prompt and of decoding, as one client has them."""
    stream(server.port, text_of("warm", 20), 4)
    prompt = stream(server.port, text_of(time.monotonic(), 500), 1)
    # What more tokens take, not when the client saw each of them: it shares the CPUs.
    short = stream(server.port, text_of(time.monotonic(), 20), 1)
    long = stream(server.port, text_of(time.monotonic(), 20), 1 + tokens)
    return prompt["prompt"] / prompt["first"], tokens / (long["last"] - short["last"])


def layout_rows(bench):
    if bench.cpus < 2:
        yield not_measured("layout", "tp 2 and dp 2", "this machine has one CPU")
        return
    path = bench.file("SmolLM2 Q4_1")
    prefill, decode, many = [], [], []
    prompts = [text_of(f"dp {i}", 195) for i in range(32)]
    for _ in bench.each_round():
        with Plimsoll(path, "--tp", 2, "--threads", 1) as server:
            two = one_stream(server, 128)
        with Plimsoll(path, "--tp", 1, "--threads", 2) as server:
            one = one_stream(server, 128)
            whole = closed_loop(server.port, prompts, 64, 16)["tokens_per_second"]
        with Plimsoll(path, "--tp", 1, "--dp", 2, "--threads", 1) as server:
            many.append((closed_loop(server.port, prompts, 64, 16)["tokens_per_second"], whole))
        prefill.append((two[0], one[0]))
        decode.append((two[1], one[1]))
    yield row("layout", "decode, tp 2 x 1 thread beside tp 1 x 2 threads", "tok/s", decode, 0.95)
    yield row("layout", "prefill 500, tp 2 x 1 thread beside tp 1 x 2 threads", "tok/s", prefill, 0.95)
    yield row("layout", "16 streams, dp 2 x 1 thread beside dp 1 x 2 threads", "tok/s", many)


# --- collectives ------------------------------------------------------------------------------------

def lines_of(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def collective_rows(bench):
    mpirun = shutil.which("mpirun")
    commands = {"Gloo": [BUILD / "gloo_bench", 2, 2000],
                "OpenMPI": [mpirun, "--allow-run-as-root", "--oversubscribe", "-np", 2, BUILD / "mpi_bench", 3000]}
    ours, others, steps, hands, crowd = {}, {name: {} for name in commands}, [], [], {}
    for _ in bench.each_round():
        for line in lines_of(child([BUILD / "collectives_bench", "--json", 2, 3000])):
            if line["what"] == "all_reduce" and line["wait"] == ("spin" if bench.cpus > 1 else "sleep"):
                ours.setdefault(line["kib"], []).append(line["p50_us"])
            elif line["what"] == "step":
                steps.append(line["p50_us"])
        for name, command in commands.items():
            if all(shutil.which(str(word)) for word in (command[0], next(w for w in command if str(w).endswith("_bench")))):
                for line in lines_of(child(command)):
                    others[name].setdefault(line["kib"], []).append(line["p50_us"])
        for line in lines_of(child([BUILD / "collectives_bench", "--json", 2 * bench.cpus, 1000])):
            if line["what"] == "hand_over":
                hands.append(line["p50_us"])
            elif line["what"] == "all_reduce":
                crowd.setdefault(line["kib"], []).append(line["p50_us"])
    for name, times in others.items():
        if not times:
            yield not_measured("collectives", f"shm all-reduce beside {name}",
                               "not installed: libopenmpi-dev, openmpi-bin, libgloo-dev")
        for kib, their in times.items():
            yield row("collectives", f"all-reduce of {kib} KiB f32, 2 ranks, beside {name}", "calls/s",
                      [(1e6 / a, 1e6 / b) for a, b in zip(ours[kib], their)], 2.0,
                      note=f"{statistics.median(ours[kib]):.1f} us; ours sums f64 of twice the bytes")
    for kib, times in crowd.items():
        yield row("collectives", f"all-reduce of {kib} KiB, {2 * bench.cpus} ranks on {bench.cpus} CPUs", "calls/s",
                  [(1e6 / a, 1e6 / b) for a, b in zip(times, hands)], 0.5 if kib <= 14 else None,
                  note="beside a futex handed once round all ranks")
    if steps:
        yield bounded("collectives", "a step's plan to another rank", "us", steps, 5.0)


# --- neighbours, start, memory ------------------------------------------------------------------------

def busy_rows(bench):
    path, threads = bench.file("SmolLM2 Q4_1"), bench.threads[-1]
    for each, at_most in ((1, 2.2), (3, 4.5)):
        slower, peer_slower = [], []
        for _ in bench.each_round(min(2, bench.rounds) if bench.quick else None):
            alone = bench.ours("decode", path, threads, 64)["tokens_per_second"]
            peer_alone = bench.peer("decode", path, threads, 16)["tokens_per_second"]
            with BusyLoops(each):
                beside = bench.ours("decode", path, threads, 64)["tokens_per_second"]
                peer_beside = bench.peer("decode", path, threads, 16)["tokens_per_second"]
            slower.append(alone / beside)
            peer_slower.append(peer_alone / peer_beside)
        made = bounded("busy", f"decode, {threads} threads, {each} busy loop{'s' if each > 1 else ''} a CPU", "x slower",
                       slower, at_most)
        made["peer"] = statistics.median(peer_slower)
        yield made


def start_rows(bench):
    path = bench.file("SmolLM2 Q4_1")
    first, again = [], []
    for _ in bench.each_round():
        with Plimsoll(path, "--tp", 1) as server:
            stream(server.port, "Hello", 1)
            first.append(time.perf_counter() - server.began)
            (rank,) = server.ranks()
            os.kill(rank["pid"], signal.SIGKILL)
            begin = time.perf_counter()
            stream(server.port, "Hello", 1)
            again.append(time.perf_counter() - begin)
    yield bounded("start", "file in the page cache to the first token", "s", first, 0.5)
    yield bounded("start", "kill -9 of a worker to the next token", "s", again, 0.25)


def memory_rows(bench):
    path = bench.file("SmolLM2 Q4_1")
    with Plimsoll(path, "--tp", 1) as server:
        stream(server.port, "Hello", 4)
        memory = server.ranks()[0]["memory"]
        pids = server.processes()
        held = sum(memory_of(pid) for pid in pids)
        weights = next(one["planned"] for one in memory["rows"] if one["term"] == "weights")
        bound = 1.25 * weights + memory["kv"]["touched"] + len(pids) * 40 * 2**20
    yield bounded("memory", f"all {len(pids)} processes, idle", "MiB", [held / 2**20], bound / 2**20,
                  note=f"at most 1.25 x {weights / 2**20:.0f} MiB of weights, KV, and 40 MiB a process")


GROUPS = {"engine": engine_rows, "prompt": prompt_rows, "server": server_rows, "layout": layout_rows,
          "collectives": collective_rows, "busy": busy_rows, "start": start_rows, "memory": memory_rows}


def measure(bench, groups):
    """All rows, as they come; a group that fails is a row that says so."""
    for group in groups:
        if time.monotonic() > bench.end:
            yield {**not_measured(group, f"{group}: all of it", "no time was left"), "verdict": "failed"}
            continue
        try:
            yield from GROUPS[group](bench)
        except (Failed, OSError, KeyError, ValueError, subprocess.TimeoutExpired) as error:
            yield {**not_measured(group, f"{group}: the rest", f"{type(error).__name__}: {error}"), "verdict": "failed"}
        with contextlib.suppress(OSError):
            (MADE / "prompts.json").unlink()
