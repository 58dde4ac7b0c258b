"""What int8 activations cost: NLL of a long text beside that of --activations f32, same file.

Run by `tools/bench activations [--chunks N] [MODEL]`. The text is this project's own documents; a token's two
NLLs are compared, so that the standard error of the mean difference tells what is chance.
"""
import argparse
import http.client
import json
import math
import pathlib
import statistics

from bench_rows import SMOLLM2
from served import ROOT, Plimsoll

CHUNK = 3200  # characters, some 900 tokens


def chunks(count):
    found = []
    for file in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("shared/*/*.md")]):
        text = file.read_text(encoding="utf-8")
        found += [text[at:at + CHUNK] for at in range(0, len(text) - CHUNK // 2, CHUNK)]
    return found[:count]


def nll(model, activations, texts):
    """Of each token of each text but its first."""
    values = []
    with Plimsoll(model, "--activations", activations, "--context-length", 2048) as server:
        for text in texts:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
            body = {"prompt": text, "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            choice = json.load(connection.getresponse())["choices"][0]
            values += [-value for value in choice["logprobs"]["token_logprobs"][1:-1]]
            connection.close()
    return values


def main():
    parser = argparse.ArgumentParser(prog="tools/bench activations", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=SMOLLM2, type=pathlib.Path)
    parser.add_argument("--chunks", type=int, default=12)
    options = parser.parse_args()
    texts = chunks(options.chunks)
    int8, f32 = (nll(options.model, kind, texts) for kind in ("int8", "f32"))
    differences = [a - b for a, b in zip(int8, f32, strict=True)]
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    print(f"{options.model.name}: {len(int8):,} tokens; NLL {statistics.mean(int8):.4f} with int8 activations, "
          f"{statistics.mean(f32):.4f} with f32; {statistics.mean(differences):+.4f} (standard error {error:.4f})")


if __name__ == "__main__":
    main()
