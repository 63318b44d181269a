//! `zarrfs check --merge`: adds up the results of the parts of a check.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::check::Verdict;
use super::part::Part;
use super::presence::{NamedChunks, Unread};
use super::report::{ArrayTotals, Report, Severity};
use super::{Failure, output};
use crate::machine::read_file;
use crate::store::{ErrorKind, Key};

/// The largest size of a result in bytes.
const MAX_RESULT_BYTES: u64 = 1 << 30;
/// The largest number of missing parts that are named.
const MAX_NAMED: usize = 20;

/// The result of one part.
struct PartResult {
    file: PathBuf,
    part: Part,
    document: Value,
}

/// Adds up the JSON documents of all parts of a check, and prints the result as one check does.
///
/// # Errors
/// If a file is no such document, if the documents are of different checks, or if a part is missing.
pub(super) fn merge(files: &[PathBuf], is_json: bool, strict: bool) -> Result<Verdict, Failure> {
    let results = files.iter().map(|file| read(file));
    let results: Vec<PartResult> = results.collect::<Result<_, _>>()?;
    let Some(first) = results.first() else {
        return Err(ErrorKind::Usage.failure("no results to add up"));
    };
    let source = text(&first.document, "source");
    check_parts(&results)?;
    let mut report = Report::new(is_json, None);
    let mut numbers = BTreeMap::new();
    let mut seconds: f64 = 0.0;
    for PartResult { file, document, .. } in &results {
        let added = add(&mut report, &mut numbers, document)?;
        added.ok_or_else(|| not_a_result(file, "a member is missing"))?;
        let took = document["summary"]["seconds"].as_f64();
        seconds = seconds.max(took.unwrap_or(0.0));
    }
    let verdict = match report.is_bad(strict) {
        true => Verdict::Bad,
        false => Verdict::Good,
    };
    let elapsed = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    report.finish(&source, elapsed, strict)?;
    Ok(verdict)
}

fn read(file: &Path) -> Result<PartResult, Failure> {
    let bytes = read_file(file, MAX_RESULT_BYTES);
    let bytes = bytes.map_err(|error| ErrorKind::at(file, error))?;
    let document: Value =
        serde_json::from_slice(&bytes).map_err(|error| not_a_result(file, &error.to_string()))?;
    if document["schema"] != *output::schema("check") {
        return Err(not_a_result(file, "it has another schema"));
    }
    let part = document["part"].as_str().and_then(|part| part.parse().ok());
    let part = part.ok_or_else(|| not_a_result(file, "it is of a whole check, without --part"))?;
    Ok(PartResult {
        file: file.to_owned(),
        part,
        document,
    })
}

fn not_a_result(file: &Path, why: &str) -> Failure {
    ErrorKind::Usage.failure(format!(
        "{}: no JSON document of check --part: {why}",
        file.display()
    ))
}

/// Checks that the results are all parts of one check.
fn check_parts(results: &[PartResult]) -> Result<(), Failure> {
    let mut found: BTreeMap<u32, &Path> = BTreeMap::new();
    let Some(first) = results.first() else {
        return Ok(());
    };
    for PartResult {
        file,
        part,
        document,
    } in results
    {
        let of_first = (first.part.count(), text(&first.document, "source"));
        if (part.count(), text(document, "source")) != of_first {
            return Err(ErrorKind::Usage.failure(format!(
                "{} and {} are not of the same check: part {} of {}, and part {part} of {}",
                first.file.display(),
                file.display(),
                first.part,
                of_first.1,
                text(document, "source"),
            )));
        }
        if let Some(other) = found.insert(part.index(), file) {
            let (other, file) = (other.display(), file.display());
            let message = format!("{other} and {file} are both of part {part}");
            return Err(ErrorKind::Usage.failure(message));
        }
    }
    let count = first.part.count();
    let missing = (1..=count).filter(|index| !found.contains_key(index));
    let missing: Vec<String> = missing
        .take(MAX_NAMED)
        .map(|index| index.to_string())
        .collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(ErrorKind::Usage.failure(format!(
            "{} of {count} parts are there; missing: {}",
            found.len(),
            missing.join(", ")
        ))),
    }
}

/// Adds the result of a part to a report. `numbers` has the arrays of the report by their paths. `None` if the document
/// has no such member.
fn add(
    report: &mut Report,
    numbers: &mut BTreeMap<String, usize>,
    document: &Value,
) -> Result<Option<()>, Failure> {
    let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64);
    let Some(arrays) = document["arrays"].as_array() else {
        return Ok(None);
    };
    for array in arrays {
        let path = text(array, "path");
        let Ok(key) = Key::new(path.as_bytes()) else {
            return Ok(None);
        };
        let place = *numbers.entry(path).or_insert_with(|| {
            let why = array.get("not_checked").and_then(Value::as_str);
            report.array(key, why.map(str::to_owned))
        });
        let totals = (|| {
            Some(ArrayTotals {
                chunks: number(array, "chunks")?,
                inner_chunks: number(array, "decoded_inner_chunks")?,
                stored_bytes: number(array, "stored_bytes")?,
                decoded_bytes: number(array, "decoded_bytes")?,
                bad: number(array, "bad")?,
            })
        })();
        let Some(totals) = totals else {
            return Ok(None);
        };
        report.decoded(Some(place), &totals);
        for why in Unread::ALL {
            let Some(count) = number(array, why.name()) else {
                continue;
            };
            let keys = array[why.keys_name()].as_array();
            let keys = keys.into_iter().flatten().filter_map(Value::as_str);
            let total = number(array, "total_chunks").unwrap_or(count);
            let chunks = NamedChunks::read(count, total, keys.map(str::to_owned).collect());
            report.unread(place, why, chunks);
        }
    }
    let summary = &document["summary"];
    let others = (|| {
        let stored_bytes: Option<u64> = arrays
            .iter()
            .map(|array| number(array, "stored_bytes"))
            .sum();
        Some(ArrayTotals {
            chunks: number(summary, "other_keys")?,
            stored_bytes: number(summary, "read_bytes")?.saturating_sub(stored_bytes?),
            ..ArrayTotals::default()
        })
    })();
    let Some(others) = others else {
        return Ok(None);
    };
    report.decoded(None, &others);
    for (severity, name) in [
        (Severity::Bad(ErrorKind::Other), "bad"),
        (Severity::NotChecked, "not_checked"),
        (Severity::Warning, "warnings"),
    ] {
        let (Some(findings), Some(count)) = (document[name].as_array(), number(summary, name))
        else {
            return Ok(None);
        };
        for finding in findings {
            let Ok(key) = Key::new(text(finding, "key").as_bytes()) else {
                return Ok(None);
            };
            let array = array_of(numbers, &text(finding, "key"));
            let severity = match finding["kind"].as_str().map(str::parse) {
                Some(Ok(kind)) => Severity::Bad(kind),
                _ => severity,
            };
            report.add(severity, array, &key, text(finding, "cause"))?;
        }
        // A document has the first findings, and the number of all.
        report.add_unnamed(severity, count.saturating_sub(findings.len() as u64));
    }
    report.add_unlisted(number(summary, "unlisted").unwrap_or(0));
    Ok(Some(()))
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

/// Returns the number of the array that a key is in.
fn array_of(numbers: &BTreeMap<String, usize>, key: &str) -> Option<usize> {
    let ends = key.match_indices('/').map(|(at, _)| at);
    let mut ends = ends.chain([0, key.len()]);
    ends.find_map(|end| numbers.get(key.get(..end)?).copied())
}
