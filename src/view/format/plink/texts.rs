//! The texts of the fileset: variants (`.bim`) and samples (`.fam`), in columns with tabs.

use std::io::Write;

use super::super::genotypes::{Samples, Variants};
use crate::fallible::{List, NoMemory};
use crate::node::ContentError;

/// Returns the name of a chromosome as `plink2 --make-bed` writes it.
fn chromosome(name: &str) -> &str {
    let Some(rest) = name.strip_prefix("chr") else {
        return name;
    };
    let is_autosome = rest
        .parse::<u8>()
        .is_ok_and(|number| (1..=22).contains(&number));
    match rest {
        "M" => "MT",
        "X" | "Y" | "MT" => rest,
        _ if is_autosome && !rest.starts_with(['0', '+']) => rest,
        _ => name,
    }
}

/// Returns the `.bim` file: chromosome, ID, genetic position (0), position, alternate allele, reference.
///
/// # Errors
/// Returns which variant has values that contradict the arrays, or a blank in a column.
pub(super) fn bim(variants: &Variants) -> Result<Vec<u8>, ContentError> {
    variants.check_blanks()?;
    let mut text = List::default();
    for index in variants.kept().indices() {
        let variant = variants.at(index)?;
        let (alternate, reference) = (variant.alternate, variant.reference);
        if [alternate, reference]
            .iter()
            .any(|text| text.contains(char::is_whitespace))
        {
            return Err(format!("variant {index} has no alleles without blanks").into());
        }
        let (id, position) = (variant.id, variant.position);
        let contig = chromosome(variant.contig);
        // The end returns a failure.
        let _ = writeln!(
            text,
            "{contig}\t{id}\t0\t{position}\t{alternate}\t{reference}"
        );
    }
    Ok(text.finish()?)
}

/// Returns the `.fam` file: family and individual (the name of the sample), no parents, no sex, no phenotype.
///
/// # Errors
/// The system has no memory for it.
pub(super) fn fam(samples: &Samples) -> Result<Vec<u8>, NoMemory> {
    let mut text = List::default();
    for name in samples.names() {
        // The end returns a failure.
        let _ = writeln!(text, "{name}\t{name}\t0\t0\t0\t-9");
    }
    text.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::super::genotypes::Alleles;
    use super::*;

    fn names(texts: &[&str]) -> Arc<Vec<String>> {
        let texts = texts.iter().map(|text| (*text).to_owned());
        Arc::new(texts.collect())
    }

    #[test]
    fn chromosomes_have_the_names_of_plink_2() {
        for (name, expected) in [
            ("chr1", "1"),
            ("chr22", "22"),
            ("chr23", "chr23"),
            ("chr01", "chr01"),
            ("chrX", "X"),
            ("chrM", "MT"),
            ("chrUn", "chrUn"),
            ("7", "7"),
            ("chr", "chr"),
        ] {
            assert_eq!(chromosome(name), expected);
        }
    }

    #[test]
    fn blanks_in_names_are_refused_and_empty_samples_left_out() {
        let samples = Samples::new(names(&["a", "b c"]));
        assert!(samples.check_blanks().unwrap_err().contains("the text 1"));
        let samples = Samples::new(names(&["a", "", "b"]));
        assert_eq!(samples.kept(), Some(vec![0, 2]));
        let text = fam(&samples).unwrap();
        assert_eq!(text, b"a\ta\t0\t0\t0\t-9\nb\tb\t0\t0\t0\t-9\n");
        assert_eq!(Samples::new(names(&["a"])).kept(), None);
    }

    #[test]
    fn variants_have_a_row_each() {
        let texts = names(&["A", "C", "", "G", "T", "A", "T", "", ""]);
        let mut variants = Variants {
            alleles: Alleles::new(texts, 3).unwrap(),
            contigs: names(&["chr1", "chrM"]),
            numbers: vec![0, 0, 1],
            positions: vec![7, 8, 9],
            ids: Some(names(&["rs1", "rs2", ""])),
        };
        let rows = bim(&variants).unwrap();
        assert_eq!(rows, b"1\trs1\t0\t7\tC\tA\nMT\t.\t0\t9\t.\tT\n");
        variants.numbers = vec![0, 0, 2];
        let error = |variants: &Variants| match bim(variants) {
            Err(ContentError::Absent(why)) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(error(&variants), "variant 2 has no contig with a name");
        variants.contigs = names(&["chr1", "chr 2", "x"]);
        assert!(error(&variants).contains("`contig_id` has a blank in the text 1"));
    }
}
