//! The chunk key encodings `suffix`, `prefix` and `template` of zarr-extensions, and `zarrs.default_suffix`: texts and
//! chunk indices, in any order (zarr-extensions, pull requests 28, 47 and 69).

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::chunk_key::canonical;
use super::codec_chain::named_configuration;
use super::error::{MetadataError, printable};

/// The largest number of encodings inside each other.
const MAX_DEPTH: usize = 8;
/// The largest number of bytes of the texts of a key. Names of files have at most 255.
const MAX_TEXT_BYTES: usize = 1024;
/// The largest number of digits to which an index is filled.
const MAX_DIGITS: usize = 64;
/// The largest number of names in a key.
const MAX_NAMES: usize = 100;
/// What texts must not contain.
const FORBIDDEN: [&str; 5] = ["..", "\\", "\0", "//", "zarr.json"];

/// A part of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The index along an axis, filled with zeros to a number of digits.
    Index {
        axis: usize,
        digits: usize,
    },
}

/// How keys of chunks consist of texts and indices, each of which is in it once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTemplate {
    /// The parts of each name of a path.
    names: Vec<Vec<Part>>,
}

impl KeyTemplate {
    /// Parses an encoding of an array with `rank` axes.
    ///
    /// # Errors
    /// The encoding is not known, does not fit the number of axes, leads out of the array, or has keys that can be those
    /// of two chunks.
    pub(super) fn parse(value: &Value, rank: usize) -> Result<Self, MetadataError> {
        Self::new(parts(value, rank, 0)?, rank)
    }

    fn new(parts: Vec<Part>, rank: usize) -> Result<Self, MetadataError> {
        let mut is_used = vec![false; rank];
        let mut names: Vec<Vec<Part>> = vec![Vec::new()];
        let mut text_bytes = 0;
        for part in parts {
            match part {
                Part::Index { axis, digits } => {
                    match is_used.get_mut(axis) {
                        Some(used) if !*used => *used = true,
                        _ => return Err(invalid("an index that the array has not, or twice")),
                    }
                    if digits > MAX_DIGITS {
                        return Err(invalid(format!("an index of {digits} digits")));
                    }
                    if let Some(name) = names.last_mut() {
                        name.push(Part::Index { axis, digits });
                    }
                }
                Part::Text(text) => {
                    text_bytes += text.len();
                    if text_bytes > MAX_TEXT_BYTES {
                        return Err(invalid(format!(
                            "texts of more than {MAX_TEXT_BYTES} bytes"
                        )));
                    }
                    for (place, text) in text.split('/').enumerate() {
                        if place > 0 {
                            names.push(Vec::new());
                        }
                        if let Some(name) = names.last_mut().filter(|_| !text.is_empty()) {
                            append(name, text);
                        }
                    }
                }
            }
        }
        if is_used.contains(&false) {
            return Err(invalid(format!("not all indices of {rank} axes")));
        }
        if names.len() > MAX_NAMES {
            return Err(invalid(format!("more than {MAX_NAMES} names in a key")));
        }
        names.iter().try_for_each(|name| check(name))?;
        Ok(Self { names })
    }

    /// Returns the number of names in a key.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the axes whose indices are in a name, in their order.
    pub(super) fn axes(&self, name: usize) -> impl Iterator<Item = usize> {
        let parts = self.names.get(name).into_iter().flatten();
        parts.filter_map(|part| match part {
            Part::Index { axis, .. } => Some(*axis),
            Part::Text(_) => None,
        })
    }

    /// Returns a name of a key, for the index along each axis.
    pub(super) fn name(&self, name: usize, index: &[u64]) -> String {
        let mut text = String::new();
        for part in self.names.get(name).into_iter().flatten() {
            match part {
                Part::Text(own) => text.push_str(own),
                Part::Index { axis, digits } => {
                    let at = index.get(*axis).copied().unwrap_or(0);
                    // Writing to a String is infallible.
                    let _ = write!(text, "{at:0digits$}");
                }
            }
        }
        text
    }

    /// Returns the key of a chunk.
    pub(super) fn encode(&self, index: &[u64]) -> String {
        let names = (0..self.len()).map(|name| self.name(name, index));
        names.collect::<Vec<_>>().join("/")
    }

    /// Sets the indices that a name has; `None` if it is no name of a chunk in a grid with `counts` chunks.
    pub(super) fn read(
        &self,
        name: usize,
        mut text: &[u8],
        counts: &[u64],
        index: &mut [u64],
    ) -> Option<()> {
        for part in self.names.get(name)? {
            match part {
                Part::Text(own) => text = text.strip_prefix(own.as_bytes())?,
                Part::Index { axis, digits } => {
                    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
                    let (number, rest) = text.split_at_checked(length)?;
                    let zeros = number.iter().take_while(|byte| **byte == b'0').count();
                    // Only the zeros that fill a short number; the last digit of 0 is its own.
                    let filled = match length == *digits {
                        true => number.get(zeros.min(length.checked_sub(1)?)..)?,
                        false if length > *digits => number,
                        false => return None,
                    };
                    let at = canonical(filled).filter(|_| !filled.is_empty())?;
                    *index.get_mut(*axis)? = Some(at)
                        .filter(|at| Some(at) < counts.get(*axis).as_ref().map(|count| *count))?;
                    text = rest;
                }
            }
        }
        text.is_empty().then_some(())
    }

    /// Returns the indices of the first names of a path, 0 for those of the names that it lacks; `None` if it is no
    /// path of a chunk in a grid with `counts` chunks.
    fn decode_prefix(&self, path: &[u8], counts: &[u64]) -> Option<Vec<u64>> {
        let mut index = vec![0; counts.len()];
        for (name, text) in path.split(|byte| *byte == b'/').enumerate() {
            self.read(name, text, counts, &mut index)?;
        }
        Some(index)
    }

    /// Returns the index of the chunk with this key.
    pub(super) fn decode(&self, key: &[u8], counts: &[u64]) -> Option<Vec<u64>> {
        let names = key.split(|byte| *byte == b'/').count();
        let is_chunk = names == self.len() && !counts.contains(&0);
        self.decode_prefix(key, counts).filter(|_| is_chunk)
    }
}

fn invalid(what: impl Into<String>) -> MetadataError {
    MetadataError::invalid("chunk_key_encoding", what)
}

/// Appends a text to a name.
fn append(name: &mut Vec<Part>, text: &str) {
    match name.last_mut() {
        Some(Part::Text(before)) => before.push_str(text),
        _ => name.push(Part::Text(text.to_owned())),
    }
}

/// Checks that a name can be that of a file, and that it has one meaning.
fn check(name: &[Part]) -> Result<(), MetadataError> {
    match name {
        [] => return Err(invalid("a key with an empty name")),
        [Part::Text(text)] if text == "." => return Err(invalid("a key with the name .")),
        _ => {}
    }
    for part in name {
        if let Part::Text(text) = part
            && let Some(found) = FORBIDDEN.iter().find(|found| text.contains(**found))
        {
            return Err(invalid(format!("a text with {found:?}")));
        }
    }
    // Otherwise, `1` and `23` is as `12` and `3`.
    let is_ambiguous = |pair: &[Part]| match pair {
        [Part::Index { .. }, Part::Index { .. }] => true,
        [Part::Index { .. }, Part::Text(text)] => text.starts_with(|c: char| c.is_ascii_digit()),
        _ => false,
    };
    match name.windows(2).any(is_ambiguous) {
        true => Err(invalid("an index that is followed by a digit")),
        false => Ok(()),
    }
}

/// Returns the parts of the keys of an encoding.
fn parts(value: &Value, rank: usize, depth: usize) -> Result<Vec<Part>, MetadataError> {
    let (name, configuration) = named_configuration("chunk_key_encoding", value)?;
    let empty = Map::new();
    let members = configuration.unwrap_or(&empty);
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    let required = |name: &str| text(name).ok_or_else(|| invalid(format!("{name} is no text")));
    if depth > MAX_DEPTH {
        return Err(invalid("too many encodings inside each other"));
    }
    let base = || {
        // The first example of the specification of `suffix` has the second form.
        let base = members
            .get("base_encoding")
            .or(members.get("base-encoding"));
        let base = base.ok_or_else(|| invalid("base_encoding is missing"))?;
        parts(base, rank, depth + 1)
    };
    let separator = |default| match text("separator") {
        None if members.contains_key("separator") => Err(invalid("separator is no text")),
        None => Ok(default),
        Some(separator @ ("." | "/")) => Ok(separator),
        Some(other) => Err(invalid(format!(
            "a separator {other:?} instead of \".\" or \"/\""
        ))),
    };
    Ok(match name {
        "default" => with_separator("c", separator("/")?, rank),
        "v2" if rank == 0 => vec![Part::Text("0".into())],
        "v2" => with_separator("", separator(".")?, rank),
        "zarrs.default_suffix" => {
            let mut parts = with_separator("c", separator("/")?, rank);
            parts.push(Part::Text(required("suffix")?.to_owned()));
            parts
        }
        "suffix" => {
            let mut parts = base()?;
            parts.push(Part::Text(required("suffix")?.to_owned()));
            parts
        }
        "prefix" => {
            let mut parts = base()?;
            let prefix = required("prefix")?;
            if prefix.is_empty() {
                return Err(invalid("an empty prefix"));
            }
            parts.insert(0, Part::Text(prefix.to_owned()));
            parts
        }
        "template" => {
            // The examples of the specification call it `format`.
            let template = match members.contains_key("template") {
                true => required("template")?,
                false => required("format")?,
            };
            of_template(template, text("separator"), rank)?
        }
        _ => {
            let what = format!("chunk key encoding {}", printable(name));
            return Err(MetadataError::unsupported(what));
        }
    })
}

/// Returns a first text and all indices, with a separator between each two of them.
fn with_separator(first: &str, separator: &str, rank: usize) -> Vec<Part> {
    let mut parts = vec![Part::Text(first.to_owned())];
    for axis in 0..rank {
        if axis > 0 || !first.is_empty() {
            parts.push(Part::Text(separator.to_owned()));
        }
        parts.push(Part::Index { axis, digits: 0 });
    }
    parts
}

/// Parses a template of `template`.
fn of_template(
    template: &str,
    separator: Option<&str>,
    rank: usize,
) -> Result<Vec<Part>, MetadataError> {
    let wrong = || invalid(format!("the template {}", printable(template)));
    let mut parts = Vec::new();
    // The place of `{*}`, and its number of digits.
    let mut rest_at = None;
    let mut left = template;
    while let Some(next) = left.chars().next() {
        if let Some(after) = left.strip_prefix("{{").or(left.strip_prefix("}}")) {
            parts.push(Part::Text(next.to_string()));
            left = after;
            continue;
        }
        let Some(expression) = left.strip_prefix('{') else {
            let end = left.find(['{', '}']).unwrap_or(left.len());
            let (text, after) = left.split_at(end);
            if text.is_empty() {
                return Err(wrong());
            }
            parts.push(Part::Text(text.to_owned()));
            left = after;
            continue;
        };
        let (expression, after) = expression.split_once('}').ok_or_else(wrong)?;
        left = after;
        let (index, digits) = match expression.split_once(":0") {
            None => (expression, 0),
            Some((index, digits)) => {
                let digits = canonical(digits.as_bytes()).filter(|digits| *digits > 0);
                let digits = digits.and_then(|digits| usize::try_from(digits).ok());
                (index, digits.ok_or_else(wrong)?)
            }
        };
        if index == "*" {
            if rest_at.replace((parts.len(), digits)).is_some() {
                return Err(wrong());
            }
            continue;
        }
        let (number, is_from_end) = match index.strip_prefix('-') {
            Some(number) => (number, true),
            None => (index, false),
        };
        let number = Some(number).filter(|number| !number.is_empty());
        let number = number.and_then(|number| canonical(number.as_bytes()));
        let number = number.and_then(|number| usize::try_from(number).ok());
        let axis = match (number.ok_or_else(wrong)?, is_from_end) {
            (0, true) => return Err(wrong()),
            (number, true) => rank.checked_sub(number).ok_or_else(wrong)?,
            (number, false) => number,
        };
        parts.push(Part::Index { axis, digits });
    }
    if let Some((place, digits)) = rest_at {
        let separator = separator.ok_or_else(|| invalid("separator is missing"))?;
        let is_free = |axis: &usize| {
            let has = |part: &Part| matches!(part, Part::Index { axis: own, .. } if own == axis);
            !parts.iter().any(has)
        };
        let mut rest = Vec::new();
        for axis in (0..rank).filter(is_free) {
            if !rest.is_empty() {
                rest.push(Part::Text(separator.to_owned()));
            }
            rest.push(Part::Index { axis, digits });
        }
        if rest.is_empty() {
            return Err(wrong());
        }
        parts.splice(place..place, rest);
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(text: &str, separator: &str) -> Value {
        json!({"name": "template", "configuration": {"template": text, "separator": separator}})
    }

    #[test]
    fn the_examples_of_the_specifications_have_their_keys() {
        let suffix = |suffix: &str, base: Value| json!({"name": "suffix", "configuration": {"suffix": suffix, "base_encoding": base}});
        for (encoding, index, key) in [
            (template("c/{*}", "/"), &[11, 22, 33][..], "c/11/22/33"),
            (template("{*}", "."), &[11, 22, 33], "11.22.33"),
            (
                template("prefix/{*}", "/"),
                &[11, 22, 33],
                "prefix/11/22/33",
            ),
            (
                template("{*}.suffix", "_"),
                &[11, 22, 33],
                "11_22_33.suffix",
            ),
            (template("{2}/{0}/{1}", "."), &[11, 22, 33], "33/11/22"),
            (template("{-1}/{*}", "/"), &[11, 22, 33], "33/11/22"),
            (template("{*:04}", "/"), &[11, 22, 33], "0011/0022/0033"),
            (template("{*:02}", "/"), &[111, 2, 33], "111/02/33"),
            (template("{{{0}}}", "."), &[7], "{7}"),
            (
                suffix(".tiff", json!({"name": "default"})),
                &[1, 2],
                "c/1/2.tiff",
            ),
            (suffix(".shard.zip", json!("v2")), &[1, 2], "1.2.shard.zip"),
            (suffix(".tiff", json!("default")), &[], "c.tiff"),
            (
                json!({"name": "prefix", "configuration": {"prefix": "x/", "base_encoding": "v2"}}),
                &[0, 0, 0],
                "x/0.0.0",
            ),
            (
                json!({"name": "zarrs.default_suffix", "configuration": {"suffix": ".bin"}}),
                &[3, 0],
                "c/3/0.bin",
            ),
        ] {
            let keys = KeyTemplate::parse(&encoding, index.len()).unwrap();
            assert_eq!(keys.encode(index), key);
            let counts: Vec<u64> = index.iter().map(|at| at + 1).collect();
            assert_eq!(keys.decode(key.as_bytes(), &counts), Some(index.to_vec()));
            assert_eq!(
                keys.decode(key.as_bytes(), &vec![0; index.len()]).is_some(),
                index.is_empty()
            );
        }
    }

    #[test]
    fn only_the_key_of_a_chunk_is_decoded() {
        let keys = KeyTemplate::parse(&template("a{1:02}/z{0}.png", ""), 2).unwrap();
        assert_eq!(keys.encode(&[3, 5]), "a05/z3.png");
        assert_eq!(keys.decode(b"a123/z0.png", &[1, 124]), Some(vec![0, 123]));
        for key in [
            "a5/z3.png",
            "a005/z3.png",
            "a05/z03.png",
            "a05/z3.pn",
            "a05/z3.png/",
            "a05",
            "a/z3.png",
            "a05/z10.png",
            "a99/z3.png",
            "b05/z3.png",
            "a05//z3.png",
            "a+5/z3.png",
        ] {
            assert_eq!(keys.decode(key.as_bytes(), &[10, 20]), None, "{key}");
        }
        assert_eq!(keys.decode_prefix(b"a05", &[10, 20]), Some(vec![0, 5]));
    }

    #[test]
    fn encodings_that_lead_elsewhere_or_to_two_chunks_are_refused() {
        let prefix = |prefix: &str| json!({"name": "prefix", "configuration": {"prefix": prefix, "base_encoding": "v2"}});
        for wrong in [
            template("{0}", "."),
            template("{0}{1}", "."),
            template("{0}1{1}", "."),
            template("{0}/{0}/{1}", "."),
            template("{0}/{1}/{2}", "."),
            template("{0}/{-3}", "."),
            template("{0}/{-0}", "."),
            template("{*}/{*}", "."),
            template("{0}/{1}/{*}", "."),
            template("/{*}", "."),
            template("{*}/", "."),
            template("../{*}", "."),
            template("a/./{*}", "/"),
            template("zarr.json/{*}", "/"),
            template("{*", "."),
            template("{*}}", "."),
            template("{}/{1}", "."),
            template("{0:5}/{1}", "."),
            template("{0:0999}/{1}", "."),
            template("{*}", "//"),
            template("{*}", ""),
            prefix(""),
            prefix("a\\"),
            prefix("../"),
            json!({"name": "suffix", "configuration": {"suffix": ".x"}}),
            json!({"name": "suffix", "configuration": {"suffix": 1, "base_encoding": "v2"}}),
            json!({"name": "suffix", "configuration": {"suffix": "/", "base_encoding": "v2"}}),
            json!({"name": "suffix", "configuration": {"suffix": "0", "base_encoding": "v2"}}),
            json!({"name": "template", "configuration": {"template": "{*}"}}),
        ] {
            assert!(KeyTemplate::parse(&wrong, 2).is_err(), "{wrong}");
        }
        let mut deep = json!("v2");
        for _ in 0..100 {
            deep =
                json!({"name": "suffix", "configuration": {"suffix": "x", "base_encoding": deep}});
        }
        assert!(KeyTemplate::parse(&deep, 2).is_err());
    }
}
