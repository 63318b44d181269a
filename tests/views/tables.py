#!/usr/bin/env python3
"""Tables of groups: `tables.py write DIRECTORY`, `tables.py check DIRECTORY MOUNT`, `tables.py rows DIRECTORY FILE`.

The first writes stores with zarr-python. The second opens `.parquet` (pyarrow, pandas, DuckDB) and `.csv`
(pandas, DuckDB, pyarrow, R) of each group and compares names and values with zarr-python.
Prints the counts; exits with 1 if anything differs. The last one prints the rows of a Parquet file.
"""
import csv
import json
import os
import subprocess
import sys
import tempfile
import warnings

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import zarr

warnings.simplefilter("ignore")
DIRECTORY = sys.argv[2]
rng = np.random.default_rng(16)
INTEGERS = [f"{kind}{size}" for kind in ("int", "uint") for size in (8, 16, 32, 64)]
FLOATS = ["float16", "float32", "float64"]
UNITS = ["ns", "us", "25us", "ms", "s", "m", "h", "D", "W", "M", "Y"]
ROWS, LARGE, LONG = 1003, 3_000_000, 3_000_000_000
LABELS = 100_000
# The count of "not a time".
NAT = np.iinfo("i8").min
counts, bad = {"parquet": 0, "csv": 0}, []


def values(dtype, rows=ROWS):
    if dtype == "bool":
        return rng.integers(0, 2, rows).astype(bool)
    if dtype in INTEGERS:
        limits = np.iinfo(dtype)
        data = rng.integers(limits.min, limits.max, rows, dtype, endpoint=True)
        data[:2] = limits.min, limits.max
        return data
    data = (rng.standard_normal(rows) * 10.0 ** rng.integers(-4, 4, rows)).astype(dtype)
    limits = np.finfo(dtype)
    data[:6] = np.nan, np.inf, -np.inf, limits.max, limits.min, limits.smallest_subnormal
    return data


def create(group, name, data, chunk, dimension=None, attributes=None, **options):
    names = None if dimension is None else [dimension]
    array = group.create_array(name, data=data, chunks=(chunk,), dimension_names=names, **options)
    array.attrs.update(attributes or {})


def dates(group, units, dimension):
    for unit in units:
        create(group, "t" + unit, rng.integers(0, 40_000, ROWS).astype(f"M8[{unit}]"), 200, dimension)


def write():
    root = zarr.create_group(DIRECTORY)
    group = root.create_group("types", attributes={"title": "Stations, \"all\"", "n": [1, 2.5]})
    create(group, "id", np.arange(ROWS) * 3, 100, "id", {"units": "1"})
    for dtype in INTEGERS + FLOATS + ["bool"]:
        create(group, dtype, values(dtype), 128 if dtype != "bool" else 77, "id")
    create(group, "text", np.array(['a,"b"', "", "x\ny", "\u00e4\u20ac", " c "] + ["d"] * (ROWS - 5), "U5"), 100, "id")
    create(group, "other", np.arange(5.0), 5, "k")
    create(group, "nameless", np.arange(ROWS), 100)
    create(group, "complex", np.zeros(ROWS, "c16"), 100, "id")
    group.create_array("plane", data=np.zeros((2, 3)), chunks=(1, 3))

    group = root.create_group("times")
    dates(group, UNITS, "x")
    create(group, "lag", rng.integers(-99, 99, ROWS).astype("m8[s]"), 200, "x")
    group = root.create_group("missing")
    data = np.array(["1999-12-31T23:59:59.123456789", "NaT", "2262-04-11"] * 4, "M8[ns]")
    create(group, "t", data, 5, "x")
    create(group, "d", data.astype("M8[D]"), 5, "x")
    create(group, "lag", np.array([5, "NaT", -7] * 4, "m8[s]"), 5, "x")

    group = root.create_group("floats")
    for name in "abc":
        data = values("float32", 77)
        data[30:40] = np.nan
        create(group, name, data, 10)

    old = zarr.create_group(os.path.join(DIRECTORY, "old"), zarr_format=2)
    for dtype in (">i2", ">u4", ">i8", ">f4", ">f8", ">M8[s]", ">M8[us]"):
        data = np.arange(9) if "M8" in dtype else values(np.dtype(dtype).newbyteorder("=").name, 9)
        create(old, dtype[1:].replace("[", "_").strip("]"), data.astype(dtype), 4)
    create(old, "bytes", np.array([b"ab", b"c\xff", b""] * 3, "S3"), 4)
    create(old, "flag", values("bool", 9), 4)

    group = root.create_group("names")
    for name in ["a b", "a,b", 'a"b', "a\nb", "A B", "\u00e4", "row", "a.b", "'"]:
        create(group, name, values("float64", 20), 7, "x")

    group = root.create_group("large")
    create(group, "n", np.arange(LARGE), 700_000, "x")
    create(group, "f", rng.standard_normal(LARGE).astype("f4"), 500_000, "x")
    create(group, "b", values("bool", LARGE), 500_001, "x")
    create(group, "i", rng.integers(-100, 100, LARGE).astype("i1"), 512_000, "x")

    # Encoded columns, longer than one read of the kernel.
    group = root.create_group("encoded")
    create(group, "b", values("bool", 300_000), 50_001, "x")
    create(group, "t", rng.integers(0, 10**9, 300_000).astype("M8[s]"), 70_000, "x")

    group = root.create_group("long")
    for name, fill in (("i", -3), ("j", 5)):
        group.create_array(name, shape=(LONG,), chunks=(1_000_000,), dtype="int8", fill_value=fill)
    group["i"][LONG - 2 :] = [8, 9]
    group = root.create_group("empty")
    create(group, "a", np.zeros(0), 1, "x")
    create(group, "b", np.zeros(0, bool), 1, "x")

    group = root.create_group("obs", attributes={
        "encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "cell", "column-order": ["z", "kind", "a"]})
    create(group, "a", values("float64", 50), 20)
    create(group, "z", values("int32", 50), 20)
    texts = group.create_array("cell", shape=(50,), chunks=(20,), dtype=str)
    texts[:] = np.array([f"cell \u00e4{i}" for i in range(50)], dtype=object)
    categorical(group, "kind", np.arange(50) % 3, ["a", "b\u00e4", 'c "d"'], "i1")

    # Categorical columns alone, and of as many values that their numbers have two bytes; one column is no text.
    group = root.create_group("kinds", attributes={
        "encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "cell", "column-order": ["few", "many", "none", "number"]})
    categorical(group, "few", rng.integers(-1, 2, ROWS), ["x", "y"], "i1")
    categorical(group, "many", rng.integers(0, 700, ROWS), [f"value {n}" for n in range(700)], "i2")
    categorical(group, "none", np.full(ROWS, -1), ["unused"], "i1")
    number = group.create_group("number", attributes={"encoding-type": "categorical"})
    create(number, "codes", np.zeros(ROWS, "i1"), 200)
    create(number, "categories", np.array([1.5]), 1)
    wrong = group.create_group("wrong", attributes={"encoding-type": "categorical"})
    create(wrong, "codes", np.full(ROWS, 7, "i1"), 200)
    create(wrong, "categories", np.array(["a"], "U1"), 1)
    group.create_group("other", attributes={"encoding-type": "nullable-integer"})

    # Less than 4 MiB of text in many elements.
    group = root.create_group("labels")
    for name, dtype in (("variable", str), ("fixed", "U6")):
        array = group.create_array(name, shape=(LABELS,), chunks=(30_000,), dtype=dtype, dimension_names=["x"])
        array[:] = np.array([f"n{i:05}" for i in range(LABELS)], object if dtype is str else dtype)
    # Text as anndata 0.13 writes it, whose index is a group, too.
    group = root.create_group("strings", attributes={
        "encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index", "column-order": ["some", "all"]})
    nullable(group, "_index", np.array([f"cell \u00e4{i}" for i in range(ROWS)], object), np.zeros(ROWS, bool))
    nullable(group, "some", np.array(["", "x", "y,\"z\""], object)[np.arange(ROWS) % 3], np.arange(ROWS) % 5 == 0)
    nullable(group, "all", np.full(ROWS, "", object), np.ones(ROWS, bool))
    nullable(group, "wrong", np.full(ROWS, "a", object), np.zeros(ROWS - 1, bool))
    write_nulls(root)


def nullable(group, name, values, mask):
    """A column as anndata writes it if some values may be missing."""
    kind = {"O": "string-array", "b": "boolean"}.get(values.dtype.kind, "integer")
    column = group.create_group(name, attributes={
        "encoding-type": f"nullable-{kind}", "encoding-version": "0.1.0", "na-value": "NaN"})
    is_text = values.dtype.kind == "O"
    array = column.create_array("values", shape=values.shape, chunks=(200,), dtype=str if is_text else values.dtype)
    array[:] = values
    create(column, "mask", mask, 150)


NULLS = {"i2": np.arange(ROWS) - 500, "u8": np.arange(ROWS, dtype="u8") + 2**63, "bool": np.arange(ROWS) % 3 == 0, "f8": np.arange(ROWS) / 8}


def write_nulls(root):
    """Numbers of which none, some or all are missing, beside a column that has all values."""
    group = root.create_group("nulls", attributes={
        "encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "cell", "column-order": []})
    create(group, "cell", np.arange(ROWS), 200)
    for name, values in NULLS.items():
        for missing in 0, 5, 1:
            mask = np.arange(ROWS) % missing == 0 if missing else np.zeros(ROWS, bool)
            nullable(group, f"{name}_{missing}", values.astype(name), mask)
    create(group.create_group("text", attributes={"encoding-type": "nullable-integer"}), "values", np.arange(ROWS), 200)


def check_nulls(parquet, comma_separated):
    table = pq.read_table(parquet)
    frame = pd.read_csv(comma_separated)
    database = duckdb.sql(f"select * from '{parquet}'").fetchall()
    for name, values in NULLS.items():
        for missing in 0, 5, 1:
            column = f"{name}_{missing}"
            expected = [None if missing and i % missing == 0 else value for i, value in enumerate(values.astype(name).tolist())]
            assert table.column(column).to_pylist() == expected, column
            assert table.schema.field(column).nullable == bool(missing), column
            place = table.column_names.index(column)
            assert [row[place] for row in database] == expected, column
            read = [None if pd.isna(value) else value for value in frame[column]]
            assert read == expected or name == "u8" and missing and np.allclose(
                [float(value or 0) for value in read], [float(value or 0) for value in expected], rtol=1e-15), (column, read[:9], expected[:9])


def categorical(group, name, codes, categories, dtype):
    """A column of texts as anndata writes it."""
    column = group.create_group(name, attributes={"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False})
    create(column, "codes", codes.astype(dtype), 200)
    texts = column.create_array("categories", shape=(len(categories),), chunks=(100,), dtype=str)
    texts[:] = np.array(categories, dtype=object)


def same(what, found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    has_nan = found.dtype.kind in "fM" and found.dtype.kind == expected.dtype.kind
    if found.shape != expected.shape or not np.array_equal(found, expected, equal_nan=has_nan):
        differ = np.flatnonzero(found != expected)[:3] if found.shape == expected.shape else []
        bad.append(f"{what}: {found.dtype} {found[differ]} is not {expected.dtype} {expected[differ]} at {differ}")


def columns(name):
    """The arrays of the table of a group, in the order of its columns."""
    group = zarr.open_group(os.path.join(DIRECTORY, name), mode="r")
    found = {key: group[key][...] for key in sorted(group.array_keys()) if group[key].ndim == 1}
    if name == "types":
        for key in ("other", "nameless", "complex"):
            del found[key]
        found = {"id": found["id"], **found}
    if name == "obs":
        found = {**{key: found[key] for key in ("cell", "z")}, "kind": decoded(group["kind"]), "a": found["a"]}
    if name == "kinds":
        found = {key: decoded(group[key]) for key in ("few", "many", "none")}
        found["number"] = np.full(ROWS, 1.5)
    if name == "strings":
        found = {key: np.where(group[key]["mask"][...], None, group[key]["values"][...].astype(object))
                 for key in ("_index", "some", "all")}
    return found


def decoded(column):
    """The values of a categorical column; None for missing values."""
    codes, texts = column["codes"][...], column["categories"][...]
    return np.array([texts[code] if code >= 0 else None for code in codes], object)


def plain(data):
    """Values as integers, floats, booleans or texts: times in their unit; 0 is not a time."""
    if data.dtype.kind in "Mm":
        return data.view("i8").astype("i8")
    return data.astype(object) if data.dtype.kind in "UTO" else data.astype(data.dtype.newbyteorder("="))


def parquet(name, path):
    data = columns(name)
    read = pq.read_table(path)
    same(f"{path} names", read.column_names, list(data))
    for key, expected in data.items():
        column = read.column(key)
        if expected.dtype.kind in "Mm":
            same(f"{path} {key} nulls", np.array(column.is_null()), np.isnat(expected))
        if column.type == pa.string():
            same(f"{path} {key}", np.array(column.to_pylist(), object), plain(expected))
        elif pa.types.is_timestamp(column.type):
            unit = column.type.unit
            assert unit == {"ns": "ns", "us": "us"}.get(np.datetime_data(expected.dtype)[0], "ms"), (key, unit)
            same(f"{path} {key}", column.to_numpy(), expected.astype(f"M8[{unit}]"))
        elif pa.types.is_fixed_size_binary(column.type):
            padded = [bytes(value).ljust(expected.dtype.itemsize, b"\0") for value in expected]
            same(f"{path} {key}", np.array(column.to_pylist(), object), np.array(padded, object))
        else:
            found = column.fill_null(NAT).to_numpy() if column.null_count else column.to_numpy()
            assert found.dtype == plain(expected).dtype, (path, key, found.dtype)
            same(f"{path} {key}", found, plain(expected))
    # pandas, with the same engine, and one column by itself.
    key = list(data)[-1]
    frame = pd.read_parquet(path, columns=[key])
    same(f"{path} pandas", [len(frame), *frame.columns], [len(data[key]), key])
    database(f"{path} DuckDB", path, data)
    counts["parquet"] += 1


def database(what, path, data, skip=()):
    """The columns as DuckDB reads them."""
    names = [key for key in data if key not in skip]
    # Names are the same without regard to case.
    quoted = ", ".join(f'"{index}"' for index in range(len(data)))
    source = f"from '{path}' t({quoted})"
    with duckdb.connect() as connection:
        for index, key in enumerate(data):
            if key not in names:
                continue
            expected = data[key]
            found = connection.sql(f'select "{index}" v {source}').fetchnumpy()["v"]
            if expected.dtype.kind == "S":
                padded = [bytes(value).ljust(expected.dtype.itemsize, b"\0") for value in expected]
                same(f"{what} {key}", np.array([bytes(value) for value in found], object), np.array(padded, object))
            elif expected.dtype.kind == "M" and np.issubdtype(found.dtype, np.datetime64):
                found = np.ma.filled(found.astype("M8[ns]"), np.datetime64("NaT"))
                same(f"{what} {key}", found, expected.astype("M8[ns]"))
            elif expected.dtype.kind in "UTO":
                found = np.array([value or "" for value in np.ma.filled(found, "")], object)
                same(f"{what} {key}", found, np.array([value or "" for value in plain(expected)], object))
            elif expected.dtype.kind == "f":
                same(f"{what} {key}", np.asarray(found).astype(expected.dtype.newbyteorder("=")), plain(expected))
            else:
                same(f"{what} {key}", np.ma.filled(found, NAT), plain(expected))


def comma_separated(name, path):
    data = {key: value for key, value in columns(name).items() if value.dtype.kind != "S"}
    lines = open(path, newline="", encoding="utf-8").read()
    rows = list(csv.reader(lines.splitlines(keepends=True)))
    has_number = not any(value.dtype.kind in "iu" for value in data.values())
    names = (["row_" if "row" in data else "row"] if has_number else []) + list(data)
    same(f"{path} names", np.array(rows[0], object), np.array(names, object))
    count = len(next(iter(data.values())))
    same(f"{path} rows", len(rows), count + 1)
    assert (os.path.getsize(path) - len(",".join(lines.splitlines()[:1]).encode()) - 1) % max(count, 1) == 0 or name == "names"
    frame = pd.read_csv(path, keep_default_na=True, na_filter=True, float_precision="round_trip")
    for key, expected in data.items():
        found = frame[key]
        if expected.dtype.kind == "M":
            # The text itself, without a time zone and in the resolution of the unit.
            expected = expected.astype(expected.dtype.newbyteorder("="))
            texts = np.where(np.isnat(expected), "", np.datetime_as_string(expected))
            unit = np.datetime_data(expected.dtype)[0]
            if unit in ("Y", "M"):
                texts = np.array([text + ("-01-01" if unit == "Y" else "-01") for text in texts])
            if unit in ("h", "m"):
                texts = np.array([text + (":00:00" if unit == "h" else ":00") for text in texts])
            same(f"{path} {key}", found.fillna("").to_numpy(object), texts.astype(object))
        elif expected.dtype.kind in "UTO":
            texts = np.array([value or "" for value in plain(expected)], object)
            same(f"{path} {key}", found.astype(object).where(found.notna(), "").to_numpy(object), texts)
        elif expected.dtype.kind == "f":
            same(f"{path} {key}", found.to_numpy().astype(expected.dtype.newbyteorder("=")), plain(expected))
        else:
            same(f"{path} {key}", found.to_numpy().astype(plain(expected).dtype), plain(expected))
    shown = {"row": np.arange(count), **data} if has_number else data
    if name != "names":
        database(f"{path} DuckDB", path, shown, [key for key, value in data.items() if value.dtype.kind == "M"])
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    read = pyarrow.csv.read_csv(path, parse_options=options)
    same(f"{path} pyarrow", [read.num_rows, read.num_columns], [count, len(names)])
    statistics(path, data)
    counts["csv"] += 1


SCRIPT = r"""
arguments <- commandArgs(TRUE)
frame <- read.csv(arguments[1], check.names = FALSE, na.strings = character(0))
names <- readLines(arguments[2])
for (name in names) {
    column <- frame[[name]]
    stopifnot(is.numeric(column) || is.logical(column) || length(column) == 0)
    connection <- file(paste0(arguments[3], name), "wb")
    writeBin(as.double(column), connection)
    close(connection)
}
"""


def statistics(path, data):
    """The numbers as R reads them, which rounds decimals to nearly the nearest number."""
    names = [key for key, value in data.items() if value.dtype.kind in "iufb" and key.isalnum()]
    if not names:
        return
    with tempfile.TemporaryDirectory() as scratch:
        script, listed = os.path.join(scratch, "script.R"), os.path.join(scratch, "names")
        open(script, "w").write(SCRIPT)
        open(listed, "w").write("".join(f"{name}\n" for name in names))
        subprocess.run(["Rscript", "--vanilla", script, path, listed, scratch + "/r_"], check=True)
        for key in names:
            expected = data[key].astype("f8")
            found = np.fromfile(os.path.join(scratch, "r_" + key), "f8")
            if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-7, atol=1e-45, equal_nan=True):
                bad.append(f"{path} {key}: R reads {found[:9]}, not {expected[:9]}")


def parts(path):
    """Each page of the file as it is in the whole."""
    with open(path, "rb", buffering=0) as opened:
        whole, descriptor = opened.readall(), opened.fileno()
        for advice in (os.POSIX_FADV_DONTNEED, os.POSIX_FADV_RANDOM):
            os.posix_fadvise(descriptor, 0, 0, advice)
        for at in range(0, len(whole), 3 * 4096):
            same(f"{path} at {at}", list(os.pread(descriptor, 4096, at)), list(whole[at : at + 4096]))


def check(mount):
    def file(group, suffix):
        return os.path.join(mount, group, ".zarrfs", group + suffix)

    for name in ("types", "times", "missing", "floats", "old", "names", "large", "encoded", "empty", "obs", "kinds", "strings", "labels"):
        parquet(name, file(name, ".parquet"))
        if name == "encoded":
            parts(file(name, ".parquet"))
        elif name == "large":
            lines = 1 + LARGE
            assert open(file(name, ".csv"), "rb").read().count(b"\n") == lines, name
            found = pd.read_csv(file(name, ".csv"), float_precision="round_trip")
            for key, expected in columns(name).items():
                same(f"{name}.csv {key}", found[key].to_numpy().astype(expected.dtype), expected)
        else:
            comma_separated(name, file(name, ".csv"))
    opened = pq.ParquetFile(file("types", ".parquet"))
    metadata = opened.metadata.metadata
    group = zarr.open_group(os.path.join(DIRECTORY, "types"), mode="r")
    assert json.loads(metadata[b"zarr.attributes"]) == dict(group.attrs), metadata
    assert json.loads(metadata[b"zarr.columns"])["id"] == {"data_type": "<i8", "attributes": {"units": "1"}}, metadata
    assert "zarrfs" in opened.metadata.created_by
    opened = pq.ParquetFile(file("large", ".parquet"))
    assert opened.num_row_groups > 1 and opened.metadata.num_rows == LARGE
    group = opened.read_row_group(1, ["n"]).column("n").to_numpy()
    assert group[0] == opened.metadata.row_group(0).num_rows and (np.diff(group) == 1).all()

    opened = pq.ParquetFile(file("long", ".parquet"))
    assert opened.metadata.num_rows == LONG
    last = opened.read_row_group(opened.num_row_groups - 1)
    assert last.column("i").to_pylist()[-3:] == [-3, 8, 9] and last.column("j").to_pylist()[-1] == 5
    path = file("long", ".csv")
    row = len("-128,-128\n")
    assert os.path.getsize(path) == len("i,j\n") + LONG * row
    with open(path, "rb") as opened:
        opened.seek(-3 * row, os.SEEK_END)
        assert opened.read() == b"  -3,5\n".rjust(row) + b"8,5\n".rjust(row) + b"9,5\n".rjust(row)
    readme = open(os.path.join(mount, "types", ".zarrfs", "README.txt")).read()
    for text in ("rows are along id (1003)", "other of k (5)", "nameless of a dimension of 1003", "complex is not in it"):
        assert text in readme, (text, readme)
    # A row without a value is not one of the empty text.
    readme = open(os.path.join(mount, "kinds", ".zarrfs", "README.txt")).read()
    for text in ("kinds/wrong is not in it: code 7 of 1 categories",):
        assert text in readme, (text, readme)
    readme = open(os.path.join(mount, "strings", ".zarrfs", "README.txt")).read()
    assert "strings/wrong is not in it: its mask has no boolean for each value" in readme, readme
    check_nulls(file("nulls", ".parquet"), file("nulls", ".csv"))
    strings = pq.read_table(file("strings", ".parquet"))
    assert [strings.column(key).null_count for key in ("_index", "some", "all")] == [0, -(-ROWS // 5), ROWS]
    kinds = pq.read_table(file("kinds", ".parquet"))
    assert kinds.column("few").null_count == (columns("kinds")["few"] == None).sum() > 0  # noqa: E711
    assert kinds.schema.field("few").nullable and not kinds.schema.field("many").nullable
    for line in bad[:50]:
        print(line[:400])
    print(json.dumps({**counts, "differences": len(bad)}))
    sys.exit(1 if bad else 0)


if sys.argv[1] == "rows":
    print(pq.read_metadata(sys.argv[3]).num_rows)
else:
    write() if sys.argv[1] == "write" else check(sys.argv[3])
