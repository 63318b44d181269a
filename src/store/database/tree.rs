//! Flat keys as a tree, with seeks in the order of keys (a loose index scan).
//!
//! A key is shown if each of its components is a file name. A value whose key is also a prefix of
//! other keys is hidden by that prefix, as in a zip archive. Each case is logged once per database.

use std::ops::ControlFlow;
use std::sync::OnceLock;

use super::{Columns, Failure, FoundValue, Snapshot, ValueMeta, corrupt, unsupported};
use crate::store::{Key, Omission, StoreError, check_component};

/// The result of a lookup of a key.
#[derive(Debug)]
pub(super) enum TreeEntry {
    /// A common prefix of other keys.
    Prefix,
    /// A value.
    Object(FoundValue),
}

/// The type of a name directly below a prefix.
#[derive(Debug, Clone, Copy)]
pub(super) enum Child {
    Prefix,
    /// A value; `None` if it was not read, or cannot be read, in which case a lookup of its name fails.
    Object(Option<ValueMeta>),
}

/// Names in order, each with a value of type `T`: one allocation holds all names of a batch.
#[derive(Debug)]
pub(super) struct NameList<T> {
    bytes: Vec<u8>,
    /// For each name, its end in `bytes`, where the next name begins.
    entries: Vec<(usize, T)>,
}

impl<T> Default for NameList<T> {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            entries: Vec::new(),
        }
    }
}

impl<T> NameList<T> {
    fn push(&mut self, name: &[u8], what: T) {
        self.bytes.extend_from_slice(name);
        self.entries.push((self.bytes.len(), what));
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn name(&self, index: usize) -> Option<&[u8]> {
        let (end, _) = self.entries.get(index)?;
        let start = match index.checked_sub(1) {
            Some(before) => self.entries.get(before)?.0,
            None => 0,
        };
        self.bytes.get(start..*end)
    }

    fn last(&self) -> Option<&[u8]> {
        self.name(self.len().checked_sub(1)?)
    }

    /// Iterates over the names, beginning with number `first`.
    pub(super) fn iter_from(&self, first: usize) -> impl Iterator<Item = (&[u8], &T)> {
        let entries = self.entries.iter().enumerate().skip(first);
        entries.filter_map(|(index, (_, what))| Some((self.name(index)?, what)))
    }

    /// The same names in the same order, with the mapped values.
    pub(super) fn try_map<U, E>(
        self,
        mut map: impl FnMut(&[u8], T) -> Result<U, E>,
    ) -> Result<NameList<U>, E> {
        let Self { bytes, entries } = self;
        let mut start = 0;
        let mut mapped = Vec::with_capacity(entries.len());
        for (end, what) in entries {
            let name = bytes.get(start..end).unwrap_or_default();
            mapped.push((end, map(name, what)?));
            start = end;
        }
        Ok(NameList {
            bytes,
            entries: mapped,
        })
    }

    /// Keeps the names for whose index `keep` returns true.
    fn filtered(self, mut keep: impl FnMut(usize) -> bool) -> Self {
        let Self { bytes, entries } = self;
        let mut kept = Self::default();
        let mut start = 0;
        for (index, (end, what)) in entries.into_iter().enumerate() {
            if keep(index) {
                kept.push(bytes.get(start..end).unwrap_or_default(), what);
            }
            start = end;
        }
        kept
    }
}

/// Warnings that are logged once per database.
#[derive(Debug, Default)]
pub(super) struct KeyWarnings {
    invalid: OnceLock<Omission>,
    hidden: OnceLock<Omission>,
}

impl KeyWarnings {
    fn invalid(&self, key: &[u8]) {
        self.invalid.get_or_init(|| {
            let key = key.get(..80).unwrap_or(key).escape_ascii();
            warned(format!(
                "keys that are no file names are left out, such as \"{key}\""
            ))
        });
    }

    fn hidden(&self, key: &[u8]) {
        self.hidden.get_or_init(|| {
            let key = key.escape_ascii();
            warned(format!(
                "values are hidden by prefixes of the same name, such as \"{key}\""
            ))
        });
    }

    /// Returns what lookups and listings have left out so far.
    pub(super) fn omissions(&self) -> Vec<Omission> {
        let found = [&self.invalid, &self.hidden].into_iter();
        found
            .filter_map(|omission| omission.get().cloned())
            .collect()
    }
}

fn warned(what: String) -> Omission {
    log::warn!("{what}");
    Omission::lost(what)
}

/// Number of invalid keys that one lookup skips.
const MAX_INVALID: usize = 10_000;

/// Finds a key.
///
/// # Errors
/// [`StoreError::NotFound`] if there is neither a value nor a valid key below it.
pub(super) fn find(
    snapshot: &mut dyn Snapshot,
    key: &Key,
    notes: &KeyWarnings,
) -> Result<TreeEntry, Failure> {
    Ok(find_with_next(snapshot, key, notes)?.0)
}

/// As [`find`], with a bound after a value and all that could be below it. The bound is mostly a key.
pub(super) fn find_with_next(
    snapshot: &mut dyn Snapshot,
    key: &Key,
    notes: &KeyWarnings,
) -> Result<(TreeEntry, Option<Vec<u8>>), Failure> {
    if key.is_root() {
        return Ok((TreeEntry::Prefix, None));
    }
    let directory = directory(key);
    if let Some((found, next)) = snapshot.find_with_next(key.as_bytes(), &directory)? {
        check_order(&directory, &next)?;
        // A key below the prefix would come before `next`.
        if !next.starts_with(&directory) {
            return Ok((TreeEntry::Object(found), Some(next)));
        }
    }
    let next = match below(snapshot, &directory, notes)? {
        KeysBelow::Key => return Ok((TreeEntry::Prefix, None)),
        KeysBelow::None(next) => next,
    };
    match snapshot.find(key.as_bytes())? {
        Some(found) => Ok((TreeEntry::Object(found), next)),
        None => Err(Failure::Failed(StoreError::NotFound { key: key.clone() })),
    }
}

/// The keys below a prefix.
enum KeysBelow {
    /// A valid key exists.
    Key,
    /// No valid key exists; this is the first key after the prefix.
    None(Option<Vec<u8>>),
}

/// Returns the common prefix of all keys below `prefix`, with the slash.
pub(super) fn directory(prefix: &Key) -> Vec<u8> {
    match prefix.is_root() {
        true => Vec::new(),
        false => [prefix.as_bytes(), b"/"].concat(),
    }
}

/// Whether a valid key begins with `directory`.
fn has_below(
    snapshot: &mut dyn Snapshot,
    directory: &[u8],
    notes: &KeyWarnings,
) -> Result<bool, Failure> {
    Ok(matches!(below(snapshot, directory, notes)?, KeysBelow::Key))
}

fn below(
    snapshot: &mut dyn Snapshot,
    directory: &[u8],
    notes: &KeyWarnings,
) -> Result<KeysBelow, Failure> {
    let mut bound = directory.to_vec();
    for _ in 0..MAX_INVALID {
        let Some(key) = snapshot.seek(&bound)? else {
            return Ok(KeysBelow::None(None));
        };
        check_order(&bound, &key)?;
        if !key.starts_with(directory) {
            return Ok(KeysBelow::None(Some(key)));
        }
        match after_invalid(&key) {
            None => return Ok(KeysBelow::Key),
            Some(next) => {
                notes.invalid(&key);
                bound = next;
            }
        }
    }
    Err(unsupported(format!(
        "more than {MAX_INVALID} keys that are no file names"
    )))
}

fn check_order(bound: &[u8], key: &[u8]) -> Result<(), Failure> {
    match key >= bound {
        true => Ok(()),
        false => Err(corrupt("its keys are not in order")),
    }
}

/// Returns the bound after all keys that share the first invalid component of `key`; `None` if all are valid.
fn after_invalid(key: &[u8]) -> Option<Vec<u8>> {
    let mut start = 0_usize;
    for component in key.split(|byte| *byte == b'/') {
        let end = start.saturating_add(component.len());
        if check_component(component).is_err() {
            return Some(match end == key.len() {
                true => successor(key),
                false => prefix_end(key.get(..end).unwrap_or(key)),
            });
        }
        start = end.saturating_add(1);
    }
    None
}

/// Returns the smallest bound after a key.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, b"\0"].concat()
}

/// Returns the smallest bound after all keys below a prefix: `0` follows `/` in byte order.
fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    [prefix, b"0"].concat()
}

/// Names directly below a prefix, in key order.
#[derive(Debug)]
pub(super) struct ChildBatch {
    pub(super) names: NameList<Child>,
    /// Where the next batch begins; `None` at the end.
    pub(super) next: Option<Vec<u8>>,
}

/// Where a scan continues.
enum Step {
    /// No more rows exist below the prefix.
    End,
    /// Continue at this bound; the rows before it need not be visited.
    Jump(Vec<u8>),
}

/// Reads about `most` names below `directory`, from `bound` on.
pub(super) fn children(
    snapshot: &mut dyn Snapshot,
    directory: &[u8],
    bound: &[u8],
    columns: Columns,
    most: usize,
    notes: &KeyWarnings,
) -> Result<ChildBatch, Failure> {
    let mut found = Candidates::default();
    let mut bound = bound.to_vec();
    let mut next = Some(bound.clone());
    let mut steps = 0_usize;
    while steps < most {
        let from = bound.clone();
        let mut step = Step::End;
        let mut order = Ok(());
        snapshot.scan(&from, columns, &mut |key, value| {
            steps = steps.saturating_add(1);
            order = check_order(&bound, key);
            if order.is_err() {
                return ControlFlow::Break(());
            }
            let Some(below) = key.strip_prefix(directory) else {
                return ControlFlow::Break(());
            };
            let end = below.iter().position(|byte| *byte == b'/');
            // Only the last component of a key directly below the prefix is new.
            let is_valid = end.is_none() && check_component(below).is_ok();
            if !is_valid && let Some(jump) = after_invalid(key) {
                notes.invalid(key);
                step = Step::Jump(jump);
                return ControlFlow::Break(());
            }
            if let Some(end) = end {
                let name = below.get(..end).unwrap_or(below);
                found.prefix(name);
                step = Step::Jump(prefix_end(&[directory, name].concat()));
                return ControlFlow::Break(());
            }
            found.object(below, value.map(|(value, _)| value));
            bound.clear();
            bound.extend_from_slice(key);
            bound.push(0);
            if steps >= most {
                step = Step::Jump(bound.clone());
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        order?;
        match step {
            Step::End => {
                found.end();
                next = None;
                break;
            }
            Step::Jump(to) => {
                bound = to;
                next = Some(bound.clone());
            }
        }
    }
    Ok(ChildBatch {
        names: found.resolve(snapshot, directory, notes)?,
        next,
    })
}

/// Names that were found, including objects that a prefix of the same name may hide.
#[derive(Debug, Default)]
struct Candidates {
    names: NameList<Child>,
    /// Indexes of objects that may have keys below them.
    doubtful: Vec<usize>,
    /// Whether the last child is an object that the next name can prove to have no keys below it.
    is_open: bool,
}

impl Candidates {
    fn prefix(&mut self, name: &[u8]) {
        self.check_last(Some(name));
        self.names.push(name, Child::Prefix);
    }

    fn object(&mut self, name: &[u8], value: Option<ValueMeta>) {
        self.check_last(Some(name));
        self.is_open = true;
        self.names.push(name, Child::Object(value));
    }

    /// Judges the last object when no key follows it.
    fn end(&mut self) {
        self.check_last(None);
    }

    /// Judges the last object by the next name. Of the names that begin with the object's name, those
    /// that continue with a byte before `/` sort before the keys below the object.
    fn check_last(&mut self, next: Option<&[u8]>) {
        if std::mem::take(&mut self.is_open)
            && let Some(last) = self.names.last()
            && let Some(rest) = next.and_then(|next| next.strip_prefix(last))
            && rest.first().is_none_or(|byte| *byte < b'/')
        {
            self.doubtful.push(self.names.len().saturating_sub(1));
        }
    }

    /// Returns the children, without objects that a prefix hides.
    fn resolve(
        mut self,
        snapshot: &mut dyn Snapshot,
        directory: &[u8],
        notes: &KeyWarnings,
    ) -> Result<NameList<Child>, Failure> {
        if self.is_open {
            self.doubtful.push(self.names.len().saturating_sub(1));
        }
        let mut hidden = Vec::new();
        for place in self.doubtful {
            let name = self.names.name(place).unwrap_or_default();
            let key = [directory, name].concat();
            if has_below(snapshot, &[&key[..], b"/"].concat(), notes)? {
                notes.hidden(&key);
                hidden.push(place);
            }
        }
        match hidden.is_empty() {
            true => Ok(self.names),
            // `hidden` is sorted, because `doubtful` is.
            false => Ok(self
                .names
                .filtered(|index| hidden.binary_search(&index).is_err())),
        }
    }
}
