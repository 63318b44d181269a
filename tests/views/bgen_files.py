"""Writes VCF Zarr with bio2zarr and BGEN with vcztools, and compares BGEN files with them and with the VCF.

    python bgen_files.py write DIRECTORY
    python bgen_files.py check DIRECTORY VIEWS SCRATCH NAME

`write` puts NAME.vcf, NAME.vcz and the files of `vcztools view-bgen` into DIRECTORY. The variants have missing, half and
haploid calls, all and some of the calls of a variant phased, and one to four alleles. `check` compares the files
NAME.vcz.bgen, .bgen.bgi and .sample in the directory VIEWS with those of vcztools, and what plink2, bgen-reader and the
package bgen read from them with the calls of the VCF. It prints the number of variants.
"""
import os
import random
import sqlite3
import struct
import subprocess
import sys
import zlib

CONTIGS = ["chr1", "chr22", "7", "chrUn_1"]
BASES = ["A", "C", "G", "T", "AT", "GGC"]


def call(kind, alleles, separator):
    allele = lambda: str(random.randrange(alleles))
    if kind == "haploid":
        return random.choice([allele(), allele(), "."])
    chance = random.random()
    if kind == "calls" and chance < 0.2:
        missing = [f".{separator}.", f".{separator}{allele()}", f"{allele()}{separator}.", allele(), "."]
        return random.choice(missing)
    return allele() + separator + allele()


def write(directory, name, samples, variants, zarr_format):
    path = os.path.join(directory, name + ".vcf")
    with open(path, "w") as vcf:
        print("##fileformat=VCFv4.3", file=vcf)
        print('##FILTER=<ID=PASS,Description="All filters passed">', file=vcf)
        for contig in CONTIGS:
            print(f"##contig=<ID={contig}>", file=vcf)
        print('##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">', file=vcf)
        names = [f"sample_{number}" for number in range(samples)]
        print("#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *names, sep="\t", file=vcf)
        for number in range(variants):
            contig = CONTIGS[number * len(CONTIGS) // variants]
            alleles = 2 if number % 7 or name == "wide" else random.choice([1, 3, 4])
            bases = random.sample(BASES, alleles)
            separators = ["/", "|", "/|"][number % 3]
            calls = (call(name, alleles, random.choice(separators)) for _ in range(samples))
            identifier = "." if number % 3 else f"rs{number}"
            print(contig, 10 + 3 * number, identifier, bases[0], ",".join(bases[1:]) or ".", ".", "PASS", ".", "GT",
                  *calls, sep="\t", file=vcf)
    store = os.path.join(directory, name + ".vcz")
    compressed = path + ".gz"
    import cyvcf2
    reader = cyvcf2.VCF(path)
    writer = cyvcf2.Writer(compressed, reader, mode="wz")
    for record in reader:
        writer.write_record(record)
    writer.close()
    subprocess.run(["tabix", "--csi", "--preset", "vcf", compressed], check=True)
    programs = os.path.dirname(sys.executable)
    convert = [os.path.join(programs, "vcf2zarr"), "convert", "--no-progress", "--zarr-format", zarr_format]
    subprocess.run([*convert, "-l", "300", "-w", "128", compressed, store], check=True)
    view = [os.path.join(programs, "vcztools"), "view-bgen", store, "-o", os.path.join(directory, name)]
    subprocess.run([*view, "--max-alleles", "2"], check=True)


def read_bgen(path):
    """Returns the header, and what identifies each variant, its decompressed genotypes, offset and length."""
    with open(path, "rb") as file:
        content = file.read()
    at = 4 + struct.unpack_from("<I", content)[0]
    header, records = content[:at], []
    while at < len(content):
        start = at
        for length, count in (("<H", 3), ("<I", 2)):
            for _ in range(count):
                at += struct.calcsize(length) + struct.unpack_from(length, content, at)[0]
            at += 6 if length == "<H" else 0
        head, (length, size) = content[start:at], struct.unpack_from("<II", content, at)
        at += 4 + length
        stream = zlib.decompressobj()
        genotypes = stream.decompress(content[at - length + 4:at])
        assert stream.eof and not stream.unused_data and len(genotypes) == size, (start, size)
        records.append((head, genotypes, start, at - start))
    return header, records


def variants_of(path):
    """Yields what identifies each variant of a VCF with at most two alleles, and its calls."""
    with open(path) as vcf:
        for line in vcf:
            if line.startswith("#"):
                continue
            contig, position, identifier, reference, alternate, *rest = line.rstrip("\n").split("\t")
            if "," not in alternate:
                yield (contig, int(position), identifier, reference, alternate), rest[4:]


def expected(call, is_phased):
    """Returns the ploidy of a call and its probabilities; `None` for those of a missing call."""
    alleles = call.replace("|", "/").split("/")
    if "." in alleles:
        return len(alleles), None
    if is_phased:
        return len(alleles), [float(allele == which) for allele in alleles for which in "01"]
    count = alleles.count("1")
    return len(alleles), [float(number == count) for number in range(len(alleles) + 1)]


def known(probabilities):
    return [float(value) for value in probabilities if value == value]


def check_variant(alleles, calls, ploidies, missing, probabilities, is_phased):
    for number, call in enumerate(calls):
        ploidy, certain = expected(call, is_phased)
        found = known(probabilities[number])
        assert ploidies[number] == ploidy, (alleles, number, call)
        assert bool(missing[number]) == (certain is None), (alleles, number, call)
        assert found == (certain or []), (alleles, number, call, found)


def check_plink(view, scratch, variants):
    """Compares the calls that plink2 reads with those of the VCF. It has no haploid calls, and plink2 2.00a3.5 exchanges
    the haplotypes of phased BGEN files, also of its own ones."""
    out = os.path.join(scratch, "plink")
    read = ["plink2", "--bgen", view, "ref-first", "--sample", view.removesuffix("bgen") + "sample"]
    options = ["--allow-extra-chr", "--out", out]
    subprocess.run([*read, *options, "--export", "vcf"], check=True, capture_output=True)
    rows = list(variants_of(out + ".vcf"))
    assert len(rows) == len(variants)
    for (found, calls), (variant, own_calls) in zip(rows, variants):
        assert found[1:] == variant[1:]
        for call, own in zip(calls, own_calls, strict=True):
            alleles, own = (text.replace("|", "/").split("/") for text in (call, own))
            own = ["."] * 2 if "." in own else own * 2 if len(own) == 1 else own
            assert sorted(alleles) == sorted(own), (variant, alleles, own)


def check_index(view, own, records):
    """Checks the tables of bgenix, with the rows of vcztools and the places of the records."""
    index = sqlite3.connect(f"file:{view}.bgi?mode=ro", uri=True)
    assert index.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    columns = "chromosome, position, rsid, number_of_alleles, allele1, allele2"
    select = f"SELECT {columns} FROM Variant ORDER BY file_start_position"
    assert index.execute(select).fetchall() == sqlite3.connect(own + ".bgi").execute(select).fetchall()
    places = "SELECT file_start_position, size_in_bytes FROM Variant ORDER BY file_start_position"
    assert index.execute(places).fetchall() == [record[2:] for record in records]
    schema = index.execute("SELECT sql FROM sqlite_schema WHERE name = 'Variant'").fetchone()[0]
    assert schema.endswith("WITHOUT ROWID"), schema
    with open(view, "rb") as file:
        beginning = file.read(1000)
    stat = os.stat(view)
    time = int(stat.st_mtime)
    metadata = index.execute("SELECT * FROM Metadata").fetchall()
    assert metadata == [(os.path.basename(view), stat.st_size, time, beginning, time)], metadata[0][:3]


def check(directory, views, scratch, name):
    import bgen
    import numpy as np
    from bgen_reader import open_bgen

    view = os.path.join(views, name + ".vcz.bgen")
    header, records = read_bgen(view)
    own_header, own_records = read_bgen(os.path.join(directory, name + ".bgen"))
    assert header == own_header
    assert [record[:2] for record in records] == [record[:2] for record in own_records]
    with open(os.path.join(views, name + ".vcz.sample")) as found, open(os.path.join(directory, name + ".sample")) as own:
        assert found.read() == own.read()
    variants = list(variants_of(os.path.join(directory, name + ".vcf")))
    assert len(variants) == len(records)

    check_index(view, os.path.join(directory, name + ".bgen"), records)
    check_plink(view, scratch, variants)

    # bgen-reader writes beside the file.
    link = os.path.join(scratch, name + ".bgen")
    os.symlink(view, link)
    os.environ["BGEN_READER_CACHE_HOME"] = scratch
    with open_bgen(link, verbose=False, allow_complex=True) as file:
        assert list(file.samples) == [f"sample_{number}" for number in range(len(variants[0][1]))]
        for number, (variant, calls) in enumerate(variants):
            found = (file.chromosomes[number], file.positions[number], file.rsids[number])
            assert found == variant[:3]
            assert file.allele_ids[number] == ",".join(variant[3:])
            probabilities, missing, ploidies = file.read(number, return_missings=True, return_ploidies=True)
            check_variant(variant, calls, ploidies[:, 0], missing[:, 0], probabilities[:, 0], file.phased[number])

    # The package bgen, with the index and without.
    with bgen.BgenReader(view) as file:
        for (variant, calls), found in zip(variants, file, strict=True):
            assert (found.chrom, found.pos, found.rsid, *found.alleles) == variant
            is_phased = all("|" in call or "/" not in call for call in calls)
            probabilities = np.atleast_2d(found.probabilities)
            missing = [not known(row) for row in probabilities]
            check_variant(variant, calls, found.ploidy, missing, probabilities, found.is_phased)
            assert is_phased or not found.is_phased
        contig = variants[-1][0][0]
        last = [variant for variant, _ in variants if variant[0] == contig]
        fetched = file.fetch(contig, last[0][1], last[-1][1])
        assert [(found.pos, found.rsid) for found in fetched] == [variant[1:3] for variant in last]
        assert [found.pos for found in file.with_rsid(last[0][2])][:1] or last[0][2] == "."
    print(len(variants))


if sys.argv[1] == "write":
    random.seed(47)
    for arguments in (("calls", 307, 1500, "2"), ("whole", 130, 600, "3"), ("haploid", 211, 300, "3"),
                      ("wide", 30000, 5, "2")):
        write(os.path.abspath(sys.argv[2]), *arguments)
else:
    check(*sys.argv[2:])
