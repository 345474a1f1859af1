"""Make requests for the quickstart, and check answers against an fp64 reference that shares no code with decomposek.

make T K SEED X.npy BODY.json      seeded rows: the same decimals as fp64 .npy and as a JSON request of model "gate"
check WEIGHTS.safetensors TENSOR X.npy ANSWER.json [--values Y.npy] [--plans PLANS.json]
    ANSWER.json is an answer of POST /v1/matmul or of `decomposek infer --json`; Y.npy its values where they are not
    in it; PLANS.json an answer of GET /v1/plans, for the chunk length where the answer's plan has none.
Bound of each element: (ceil(Kc/16) + S) * 2^-23 * sum|a*b|, plus half a unit of fp32. Exit status: 0 within, 1 not.
Without numpy 64 spread elements are checked instead of all.
"""

import ast
import json
import math
import random
import struct
import sys

try:
    import numpy
except ImportError:
    numpy = None


def write_npy(path, rows):
    count, width = len(rows), len(rows[0]) if rows else 0
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({count}, {width}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        for row in rows:
            file.write(struct.pack(f"<{width}d", *row))


def read_npy(path):
    """Rows of floats from a two-dimensional little-endian f4 or f8 file."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:6] == b"\x93NUMPY", f"{path} is no .npy file"
    start, length = (12, struct.unpack("<I", data[8:12])[0]) if data[6] > 1 else (10, struct.unpack("<H", data[8:10])[0])
    header = ast.literal_eval(data[start : start + length].decode("latin-1"))
    code = {"<f4": "f", "<f8": "d"}[header["descr"]]
    count, width = header["shape"]
    values = struct.unpack_from(f"<{count * width}{code}", data, start + length)
    return [values[row * width : (row + 1) * width] for row in range(count)]


def round_to_bf16(rows):
    """binary64 -> the nearest bf16, ties to even; normal numbers and zero are all that the generator makes."""
    if numpy:
        mantissa, exponent = numpy.frexp(numpy.array(rows, dtype=numpy.float64).reshape(len(rows), -1))
        return numpy.ldexp(numpy.rint(numpy.ldexp(mantissa, 8)), exponent - 8)
    parts = ([math.frexp(value) for value in row] for row in rows)
    return [[math.ldexp(round(math.ldexp(mantissa, 8)), exponent - 8) for mantissa, exponent in row] for row in parts]


def read_bf16_tensor(path, name):
    """[n, k] weights as bits, from the file format alone: length word, JSON header, data."""
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        entry = json.loads(file.read(length))[name]
        assert entry["dtype"] == "BF16", entry
        begin, end = entry["data_offsets"]
        file.seek(8 + length + begin)
        data = file.read(end - begin)
    return entry["shape"], data


def worst_with_numpy(x, shape, data, y, depth):
    weights = (numpy.frombuffer(data, "<u2").astype(numpy.uint32) << 16).view(numpy.float32).astype(numpy.float64).reshape(shape).T
    reference = x @ weights
    allowed = depth * 2.0**-23 * (numpy.abs(x) @ numpy.abs(weights)) + 2.0**-24 * numpy.abs(reference)
    excess = numpy.abs(numpy.array(y, dtype=numpy.float64) - reference) / allowed
    excess = numpy.where(numpy.isnan(excess), numpy.inf, excess)
    return float(excess.max()), int(excess.size)


def worst_by_hand(x, shape, data, y, depth):
    n, k = shape
    worst, count = 0.0, 0
    for index in range(0, len(x) * n, max(1, len(x) * n // 64)):
        row, column = divmod(index, n)
        bits = struct.unpack_from(f"<{k}H", data, column * k * 2)
        weights = struct.unpack(f"<{k}f", struct.pack(f"<{k}I", *(b << 16 for b in bits)))
        products = [a * b for a, b in zip(x[row], weights)]  # 8 bits times 8 bits: exact
        reference, magnitude = math.fsum(products), math.fsum(map(abs, products))
        error = abs(y[row][column] - reference) / (depth * 2.0**-23 * magnitude + 2.0**-24 * abs(reference))
        worst, count = max(worst, error if error == error else math.inf), count + 1
    return worst, count


def chunk_length(answer, plans_path, k):
    plan = answer["plan"]
    if "chunk_k" in plan:
        return plan["chunk_k"]
    if plans_path:
        with open(plans_path) as file:
            for entry in json.load(file)["plans"]:
                if entry["model"] == answer["model"] and entry["bucket"] == plan["bucket"]:
                    assert entry["split_k"] == plan["split_k"], (entry, plan)
                    return entry["chunk_k"]
    return -(-k // plan["split_k"])


def make(t, k, seed, x_path, body_path):
    t, k = int(t), int(k)
    # Ten-thousandths from -3.2768 to 3.2767, each with its text: fast, and the same decimals in both files.
    values = [(index - 32768) / 10000 for index in range(65536)]
    texts = list(map(repr, values))
    source = random.Random(int(seed))
    indices = [struct.unpack(f"<{k}H", source.randbytes(2 * k)) for _ in range(t)]
    write_npy(x_path, [[values[index] for index in row] for row in indices])
    with open(body_path, "w") as file:
        file.write('{"model":"gate","x":[')
        file.write(",".join("[" + ",".join([texts[index] for index in row]) + "]" for row in indices))
        file.write("]}")
    return 0


def check(weights_path, tensor, x_path, answer_path, options):
    with open(answer_path) as file:
        answer = json.load(file)
    x = round_to_bf16(read_npy(x_path))
    y = read_npy(options["--values"]) if "--values" in options else answer["y"]
    shape, data = read_bf16_tensor(weights_path, tensor)
    n, k = shape
    if answer["shape"] != [len(x), n] or len(y) != len(x) or any(len(row) != n for row in y):
        print(f"WRONG shape {answer['shape']}, expected {[len(x), n]}")
        return 1
    depth = math.ceil(chunk_length(answer, options.get("--plans"), k) / 16) + answer["plan"]["split_k"]
    worst, count = (worst_with_numpy if numpy else worst_by_hand)(x, shape, data, y, depth)
    verdict = "within the bound" if worst <= 1.0 else "OUTSIDE THE BOUND"
    print(f"  fp64 reference: {count} values checked, worst error {worst:.4f} of the allowed: {verdict}")
    times = answer["timing_us"]
    shown = ", ".join(f"{name} {times[name]:.1f}" for name in ("queue", "kernel", "total", "round_trip") if times.get(name) is not None)
    print(f"  y[0][:4] = {[round(float(value), 5) for value in y[0][:4]]}, shape {answer['shape']}")
    print(f"  timing_us: {shown}; plan: bucket {answer['plan']['bucket']}, {answer['plan']['variant']}, split_k {answer['plan']['split_k']}, {answer['plan']['backend']}")
    return 0 if worst <= 1.0 else 1


def main(arguments):
    if len(arguments) == 6 and arguments[0] == "make":
        return make(*arguments[1:])
    if len(arguments) >= 5 and len(arguments) % 2 == 1 and arguments[0] == "check":
        options = dict(zip(arguments[5::2], arguments[6::2]))
        if set(options) <= {"--values", "--plans"}:
            return check(*arguments[1:5], options)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
