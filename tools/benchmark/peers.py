"""Plimsoll beside llama.cpp, OpenMPI and Gloo: every speed target, in one run.

Run by `tools/bench peers`. Exit code 1: a target was missed, or a row could not be measured that should
have been.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

import bench_rows
from bench_rows import Bench


def machine(bench):
    name = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                 if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    return f"{name}, {bench.cpus} CPUs, {bench.kind}, {memory:.0f} GiB, Linux {platform.release()}; load before: {load:.2f}"


def number(value):
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def share(value):
    return "" if value is None else f"{100 * value:.0f} %"


def cells(row):
    at_most = "at most" in row["note"]
    target = "" if row["target"] is None else ("<= " if at_most else ">= ") + number(row["target"])
    return [row["what"], row["unit"], number(row["plimsoll"]), number(row["peer"]), number(row["ratio"]), target,
            share(row["share"]), row["verdict"], "" if row["note"] in ("at most", "ratio at most") else row["note"]]


HEADS = ["what", "unit", "Plimsoll", "peer", "ratio", "target", "of limit", "", ""]


def markdown(run):
    lines = [f"# CPU speed, {run['date']}", "",
             f"`{run['command']}` at commit {run['commit']}, on: {run['machine']}.", "",
             "Medians; the ratio is the median of the ratios within a round, in which the sides alternate. The peer is "
             "llama.cpp as `llama-cpp-python` 0.3.36 builds it for the machine, with the better of flash attention on and off, "
             "or what the row names. *Of limit*: bytes read for a token by the bandwidth that `limits_bench` measured beside it, "
             "or the least time for the multiply-adds by the time taken. Machines drift: read the ratios.", "",
             "| " + " | ".join(HEADS) + " |", "|" + "---|" * len(HEADS)]
    lines += ["| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells(row)) + " |"
              for row in run["rows"]]
    return "\n".join(lines) + "\n"


def print_row(row):
    what, unit, *figures, verdict, note = cells(row)
    print(f"{what:<66}{unit:<9}" + "".join(f"{figure:>10}" for figure in figures) + f"  {verdict:<12} {note}", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="tools/bench peers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds; at most 20 minutes")
    parser.add_argument("--only", action="append", choices=bench_rows.GROUPS, help="these groups of rows alone")
    parser.add_argument("--file", action="append", choices=[name for name, _, _ in bench_rows.FILES + bench_rows.FAMILIES],
                        help="of the group engine, these files alone")
    parser.add_argument("--rounds", type=int, help="default: 7, or 3 with --quick")
    parser.add_argument("--minutes", type=float, help="begins no round later than this")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="writes the table there, too")
    parser.add_argument("--llama-server", metavar="PATH", help="for the rows of servers, instead of the package")
    parser.add_argument("--llama-bench", metavar="PATH", help="for decode and prefill, instead of the package")
    options = parser.parse_args()
    bench = Bench(options)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=bench_rows.ROOT, capture_output=True,
                            text=True).stdout.strip()
    run = {"date": datetime.date.today().isoformat(), "machine": machine(bench), "commit": commit,
           "command": " ".join(["tools/bench peers", *sys.argv[1:]]), "rows": []}
    if not options.json:
        print(run["machine"])
        print(f"{'':<75}" + "".join(f"{head:>10}" for head in HEADS[2:7]), flush=True)
    for row in bench_rows.measure(bench, options.only or list(bench_rows.GROUPS)):
        run["rows"].append(row)
        if not options.json:
            print_row(row)
    if options.json:
        print(json.dumps(run, indent=1))
    if options.markdown:
        options.markdown.write_text(markdown(run))
    return 1 if any(row["verdict"] in ("missed", "failed") for row in run["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
