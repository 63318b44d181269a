//! The texts of the fileset: variants (`.bim`) and samples (`.fam`), in columns with tabs.

use std::io::Write;
use std::sync::Arc;

use super::alleles::Alleles;

/// Names without blanks, which separate the columns of the files.
#[derive(Debug)]
pub(super) struct Names(Arc<Vec<String>>);

impl Names {
    /// Returns the texts of an array of this name.
    ///
    /// # Errors
    /// Returns which text has a blank in it.
    pub(super) fn new(texts: Arc<Vec<String>>, array: &str) -> Result<Self, String> {
        let has_blank = |text: &String| text.contains(|c: char| c.is_whitespace() || c == '\0');
        match texts.iter().position(has_blank) {
            Some(index) => Err(format!(
                "`{array}` has a blank in the text {index}, and blanks separate the columns of PLINK"
            )),
            None => Ok(Self(texts)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the indices of the names that are not empty; `None` if that is all of them.
    pub(super) fn kept(&self) -> Option<Vec<usize>> {
        let is_kept = |index: &usize| self.0.get(*index).is_some_and(|name| !name.is_empty());
        let kept: Vec<usize> = (0..self.len()).filter(is_kept).collect();
        (kept.len() < self.len()).then_some(kept)
    }
}

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
/// Returns which variant has values that contradict the arrays.
pub(super) fn bim(
    alleles: &Alleles,
    contigs: &Names,
    numbers: &[i64],
    positions: &[i64],
    ids: Option<&Names>,
) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    for variant in alleles.kept().indices() {
        let variant = usize::try_from(variant).unwrap_or(usize::MAX);
        let wrong = |what: &str| format!("variant {variant} has no {what}");
        let contig = numbers.get(variant).copied();
        let contig = contig.and_then(|number| contigs.0.get(usize::try_from(number).ok()?));
        let contig = contig.ok_or_else(|| wrong("contig with a name"))?;
        let position = positions.get(variant).ok_or_else(|| wrong("position"))?;
        let id = match ids.map(|ids| ids.0.get(variant)) {
            Some(Some(id)) if !id.is_empty() => id,
            Some(None) => return Err(wrong("ID")),
            _ => ".",
        };
        let (alternate, reference) = alleles.of(variant).ok_or_else(|| wrong("alleles"))?;
        if [alternate, reference]
            .iter()
            .any(|text| text.contains(char::is_whitespace))
        {
            return Err(wrong("alleles without blanks"));
        }
        let contig = chromosome(contig);
        // Writing to a Vec does not fail.
        let _ = writeln!(
            text,
            "{contig}\t{id}\t0\t{position}\t{alternate}\t{reference}"
        );
    }
    Ok(text)
}

/// Returns the `.fam` file: family and individual (the name of the sample), no parents, no sex, no phenotype.
pub(super) fn fam(samples: &Names) -> Vec<u8> {
    let mut text = Vec::new();
    for name in samples.0.iter().filter(|name| !name.is_empty()) {
        // Writing to a Vec does not fail.
        let _ = writeln!(text, "{name}\t{name}\t0\t0\t0\t-9");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(texts: &[&str]) -> Result<Names, String> {
        let texts = texts.iter().map(|text| (*text).to_owned());
        Names::new(Arc::new(texts.collect()), "names")
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
        assert!(names(&["a", "b c"]).unwrap_err().contains("the text 1"));
        let samples = names(&["a", "", "b"]).unwrap();
        assert_eq!(samples.kept(), Some(vec![0, 2]));
        let text = fam(&samples);
        assert_eq!(text, b"a\ta\t0\t0\t0\t-9\nb\tb\t0\t0\t0\t-9\n");
        assert_eq!(names(&["a"]).unwrap().kept(), None);
    }

    #[test]
    fn variants_have_a_row_each() {
        let texts = ["A", "C", "", "G", "T", "A", "T", "", ""];
        let texts = Arc::new(texts.map(str::to_owned).to_vec());
        let alleles = Alleles::new(texts, 3).unwrap();
        let contigs = names(&["chr1", "chrM"]).unwrap();
        let ids = names(&["rs1", "rs2", ""]).unwrap();
        let rows = bim(&alleles, &contigs, &[0, 0, 1], &[7, 8, 9], Some(&ids)).unwrap();
        assert_eq!(rows, b"1\trs1\t0\t7\tC\tA\nMT\t.\t0\t9\t.\tT\n");
        let error = bim(&alleles, &contigs, &[0, 0, 2], &[7, 8, 9], None).unwrap_err();
        assert_eq!(error, "variant 2 has no contig with a name");
    }
}
