"""Writes VCF Zarr with bio2zarr, and the filesets that vcztools and plink2 make of the same variants.

    python plink.py DIRECTORY

DIRECTORY gets `NAME.vcz` and, in `vcztools` and in `plink2`, `NAME.bed`, `.bim` and `.fam`. The variants have missing and
half calls, haploid calls, phase, three and four alleles, one allele, and names of several kinds of contigs.
"""
import os
import random
import subprocess
import sys

import cyvcf2

directory = os.path.abspath(sys.argv[1])
programs = os.path.dirname(sys.executable)
random.seed(46)
SAMPLES = 307
CONTIGS = ["chr1", "chr22", "7", "chrUn_1"]


def call(alleles):
    kind = random.random()
    allele = lambda: str(random.randrange(alleles))
    if kind < 0.05:
        return "./."
    if kind < 0.08:
        return random.choice([f"./{allele()}", f"{allele()}|."])
    return allele() + random.choice("/|") + allele()


def write(name, variants, most_alleles, zarr_format):
    path = os.path.join(directory, name + ".vcf")
    with open(path, "w") as vcf:
        print("##fileformat=VCFv4.3", file=vcf)
        print('##FILTER=<ID=PASS,Description="All filters passed">', file=vcf)
        for contig in CONTIGS:
            print(f"##contig=<ID={contig}>", file=vcf)
        print('##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">', file=vcf)
        names = [f"sample_{number}" for number in range(SAMPLES)]
        print("#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *names, sep="\t", file=vcf)
        for number in range(variants):
            contig = CONTIGS[number * len(CONTIGS) // variants]
            alleles = 2
            if most_alleles > 2 and number % 7 == 0:
                alleles = random.choice([1, 3, 4])
            bases = random.sample(["A", "C", "G", "T", "AT", "GGC"], alleles)
            calls = (call(alleles) for _ in range(SAMPLES))
            identifier = "." if number % 3 else f"rs{number}"
            print(contig, 10 + 3 * number, identifier, bases[0], ",".join(bases[1:]) or ".", ".", "PASS", ".", "GT",
                  *calls, sep="\t", file=vcf)
    store = os.path.join(directory, name + ".vcz")
    compressed = path + ".gz"
    reader = cyvcf2.VCF(path)
    writer = cyvcf2.Writer(compressed, reader, mode="wz")
    for record in reader:
        writer.write_record(record)
    writer.close()
    subprocess.run(["tabix", "--csi", "--preset", "vcf", compressed], check=True)
    convert = [os.path.join(programs, "vcf2zarr"), "convert", "--no-progress", "--zarr-format", zarr_format]
    subprocess.run([*convert, "-l", "400", "-w", "100", compressed, store], check=True)
    for program in ("vcztools", "plink2"):
        os.makedirs(os.path.join(directory, program), exist_ok=True)
    out = os.path.join(directory, "vcztools", name)
    view = [os.path.join(programs, "vcztools"), "view-plink", store, "-o", out, "--max-alleles", "2"]
    subprocess.run(view, check=True)
    out = os.path.join(directory, "plink2", name)
    make = ["plink2", "--vcf", path, "--vcf-half-call", "missing", "--max-alleles", "2", "--allow-extra-chr"]
    subprocess.run([*make, "--make-bed", "--out", out], check=True, stdout=subprocess.DEVNULL)


write("calls", 2500, 4, "2")
write("pairs", 900, 2, "3")
