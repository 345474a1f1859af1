#!/usr/bin/env python3
"""Tables and a plot from the CSV of `bench_kernels router --csv FILE`, and the resources of the compiled kernels.

  bench_plot.py FILE.csv [--plot OUT.png]      fastest plans for each T, what lost by how much
  bench_plot.py --resources PLUGIN.so          registers, spills and shared memory of each kernel (needs cuobjdump)
"""

import argparse
import collections
import csv
import re
import subprocess
import sys


def read(path):
    """(header lines, rows); the last row of a plan wins: the fastest ones are timed twice."""
    with open(path, newline="", encoding="utf-8") as file:
        lines = file.readlines()
    header = [line[2:].strip() for line in lines if line.startswith("#")]
    rows = {}
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        for name in ("k", "n", "m", "split_k", "chunk_k", "pdl", "invariant", "built_in"):
            row[name] = int(row[name])
        for name in ("cold_us", "hot_us", "pair_us", "weight_gb_s"):
            row[name] = float(row[name])
        key = tuple(row[name] for name in ("k", "n", "m", "variant", "split_k", "chunk_k", "pdl", "invariant"))
        rows[key] = row
    return header, list(rows.values())


def is_library(row):
    return row["variant"].startswith("cublas")


def fastest(rows, wanted):
    found = [row for row in rows if wanted(row)]
    found = [row for row in found if row["hot_us"] > 0] or found  # the choice of the run: timed again, hot too
    return min(found, key=lambda row: row["cold_us"]) if found else None


def time(row):
    return f"{row['cold_us']:.2f}" if row else "-"


def print_tables(rows, runners_up):
    shapes = collections.OrderedDict(((row["k"], row["n"]), row["models"]) for row in rows)
    for (k, n), models in shapes.items():
        mine = [row for row in rows if (row["k"], row["n"]) == (k, n)]
        print(f"\n### [T,{k}] x [{k},{n}]: {models}\n")
        print("| T | pdl0 | pdl1 | hot pdl0/pdl1 | pair pdl0/pdl1 | invariant pdl0/pdl1 | cuBLAS | cuBLASLt | weights GB/s | plan pdl0, pdl1 | next best pdl0 |")
        print("|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|---|")
        for m in sorted({row["m"] for row in mine}):
            at = [row for row in mine if row["m"] == m]
            ours = [[fastest(at, lambda r, p=pdl, i=inv: r["pdl"] == p and r["invariant"] == i and not is_library(r)) for pdl in (0, 1)] for inv in (0, 1)]
            cublas = fastest(at, lambda r: r["variant"] == "cublas")
            lt = fastest(at, lambda r: r["variant"].startswith("cublaslt"))
            plain = sorted((r for r in at if r["pdl"] == 0 and r["invariant"] == 0 and not is_library(r)), key=lambda r: r["cold_us"])
            best = plain[0]
            losers = ", ".join(f"{r['variant']} +{(r['cold_us'] / best['cold_us'] - 1) * 100:.0f} %" for r in plain[1 : 1 + runners_up])
            both = lambda name: "/".join(f"{r[name]:.2f}" if r and r[name] > 0 else "-" for r in ours[0])
            print(f"| {m} | {time(ours[0][0])} | {time(ours[0][1])} | {both('hot_us')} | {both('pair_us')} | {time(ours[1][0])}/{time(ours[1][1])} | "
                  f"{time(cublas)} | {time(lt)} | {best['weight_gb_s']:.0f} | {best['variant']}, {ours[0][1]['variant'] if ours[0][1] else '-'} | {losers} |")


def plot(rows, path):
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
        import matplotlib.ticker
    except ImportError:
        sys.exit("bench_plot.py: matplotlib is missing: no plot")
    shapes = list(collections.OrderedDict(((row["k"], row["n"]), None) for row in rows))
    figure, axes = plt.subplots(1, len(shapes), figsize=(5 * len(shapes), 4), squeeze=False)
    lines = {
        "decomposek": lambda r: r["pdl"] == 0 and r["invariant"] == 0 and not is_library(r),
        "decomposek, PDL": lambda r: r["pdl"] == 1 and r["invariant"] == 0 and not is_library(r),
        "cuBLAS": lambda r: r["variant"] == "cublas",
        "cuBLASLt, best of 8": lambda r: r["variant"].startswith("cublaslt"),
    }
    for axis, (k, n) in zip(axes[0], shapes):
        mine = [row for row in rows if (row["k"], row["n"]) == (k, n)]
        tokens = sorted({row["m"] for row in mine})
        for label, wanted in lines.items():
            best = [fastest(mine, lambda r, m=m: r["m"] == m and wanted(r)) for m in tokens]
            axis.plot([m for m, row in zip(tokens, best) if row], [row["cold_us"] for row in best if row], marker=".", label=label)
        axis.set(xscale="log", title=f"[T,{k}] x [{k},{n}]", xlabel="T", ylabel="microseconds, cold")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        axis.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
        axis.grid(True, alpha=0.3)
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def demangle(names):
    try:
        result = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True)
        return result.stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return names


def print_resources(plugin):
    try:
        text = subprocess.run(["cuobjdump", "--dump-resource-usage", plugin], capture_output=True, text=True, check=True).stdout
    except OSError:
        sys.exit("bench_plot.py: cuobjdump is missing (it comes with the CUDA toolkit)")
    except subprocess.CalledProcessError as error:
        sys.exit(f"bench_plot.py: cuobjdump: {error.stderr.strip()}")
    pattern = re.compile(r"Function (\S+):\s*\n\s*(REG:\d+.*)")
    found = pattern.findall(text)
    if not found:
        sys.exit(f"bench_plot.py: no kernel in {plugin}")
    print("| kernel | registers | stack bytes | local bytes (spills) | shared bytes |\n|---|--:|--:|--:|--:|")
    spilling = 0
    for name, (_, usage) in sorted(zip(demangle([name for name, _ in found]), found)):
        values = dict(re.findall(r"(\w+(?:\[\d+\])?):(\d+)", usage))
        spilling += int(values.get("LOCAL", 0)) > 0
        print(f"| `{name}` | {values.get('REG')} | {values.get('STACK', 0)} | {values.get('LOCAL', 0)} | {values.get('SHARED', 0)} |")
    print(f"\n{len(found)} kernels, {spilling} with spills")
    return 1 if spilling else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="?")
    parser.add_argument("--plot", metavar="OUT.png")
    parser.add_argument("--runners-up", type=int, default=2, help="how many losing plans to name (default 2)")
    parser.add_argument("--resources", metavar="PLUGIN.so")
    arguments = parser.parse_args()
    if arguments.resources:
        return print_resources(arguments.resources)
    if not arguments.csv:
        parser.error("a CSV file or --resources")
    header, rows = read(arguments.csv)
    print("\n".join(header))
    print_tables(rows, arguments.runners_up)
    if arguments.plot:
        plot(rows, arguments.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
