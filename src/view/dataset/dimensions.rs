//! Scopes of dimensions: a name has one length in a group and its subgroups, unless they redeclare it.

use std::collections::{HashMap, HashSet};

use super::Dimension;
use super::axis_coordinates::CoordinatesByDimension;

/// The dimensions of the groups from the root down to the current one.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    all: Vec<Dimension>,
    open: Vec<Scope>,
    /// The bytes of decoded text in the variables so far.
    text_bytes: usize,
    /// The number of computed coordinates so far.
    pub(super) coordinates: u64,
    /// Dimensions whose elements have names, each with the variable of the names.
    pub(super) labels: Vec<(usize, String)>,
    /// What the variables so far say of the coordinates along each dimension.
    pub(super) axis_coordinates: CoordinatesByDimension,
}

/// The names of one group.
#[derive(Debug, Default)]
struct Scope {
    /// The indices of the dimensions that the group declares, by name.
    names: HashMap<String, usize>,
    /// The dimensions that the group declares, in order.
    declared: Vec<usize>,
    /// Names that are resolved in the group. Readers look dimensions up by name, so a name in use is not
    /// declared again.
    settled: HashSet<String>,
    /// Names of the subgroups, which are unique within the group.
    groups: HashSet<String>,
}

/// The maximum length of a name before a suffix is appended, in bytes.
const MAX_STEM_BYTES: usize = 200;

/// The maximum size of the decoded text of all variables, in bytes.
const MAX_TEXT_BYTES: usize = 32 << 20;

impl Scopes {
    /// Counts the decoded text of a variable.
    ///
    /// # Errors
    /// The file has too much text.
    pub(super) fn add_text(&mut self, bytes: usize) -> Result<(), String> {
        let total = self.text_bytes.checked_add(bytes);
        let total = total.filter(|total| *total <= MAX_TEXT_BYTES);
        self.text_bytes =
            total.ok_or_else(|| format!("more than {MAX_TEXT_BYTES} bytes of text in one file"))?;
        Ok(())
    }

    /// Enters a group with subgroups of these names.
    pub(super) fn enter(&mut self, groups: impl IntoIterator<Item = String>) {
        self.open.push(Scope {
            groups: groups.into_iter().collect(),
            ..Scope::default()
        });
    }

    /// Leaves the group and returns the dimensions that it declares.
    pub(super) fn leave(&mut self) -> Vec<usize> {
        self.open
            .pop()
            .map(|scope| scope.declared)
            .unwrap_or_default()
    }

    pub(super) fn into_dimensions(self) -> Vec<Dimension> {
        self.all
    }

    /// Returns the dimension of an index.
    pub(super) fn by_number(&self, number: usize) -> Option<&Dimension> {
        self.all.get(number)
    }

    /// Returns the dimension of a name in the current group.
    pub(super) fn find(&self, name: &str) -> Option<(usize, u64)> {
        let mut scopes = self.open.iter().rev();
        let number = scopes.find_map(|scope| scope.names.get(name))?;
        Some((*number, self.all.get(*number)?.length))
    }

    /// Returns the dimension of this name and length that the current group declares.
    pub(super) fn declared_here(&self, name: &str, length: u64) -> Option<usize> {
        let number = *self.open.last()?.names.get(name)?;
        let is_so_long = self.all.get(number)?.length == length;
        is_so_long.then_some(number)
    }

    /// Resolves a name in the current group to the dimension of a group above if that has this length, else
    /// to a new dimension. All names of a group are resolved before the first one is used.
    pub(super) fn settle(&mut self, name: &str, length: u64) {
        let Some(scope) = self.open.last_mut() else {
            return;
        };
        if scope.groups.contains(name) || !scope.settled.insert(name.to_owned()) {
            return;
        }
        if self.find(name).is_none_or(|(_, there)| there != length) {
            self.declare(name.to_owned(), length);
        }
    }

    /// Returns a dimension of this length, with this name if the name has this length in the current group.
    /// Dimensions of `taken` are not returned: a variable has each dimension once.
    pub(super) fn dimension(&mut self, name: &str, length: u64, taken: &[usize]) -> usize {
        self.settle(name, length);
        if let Some((number, there)) = self.find(name)
            && there == length
            && !taken.contains(&number)
        {
            return number;
        }
        let is_other_length = self.find(name).is_some_and(|(_, there)| there != length);
        let mut end = name.len().min(MAX_STEM_BYTES);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let stem = name.get(..end).unwrap_or_default();
        for attempt in 2_u64.. {
            let candidate = match (is_other_length, attempt) {
                (true, 2) => format!("{stem}_{length}"),
                (true, attempt) => format!("{stem}_{length}_{attempt}"),
                (false, attempt) => format!("{stem}_{attempt}"),
            };
            self.settle(&candidate, length);
            match self.find(&candidate) {
                Some((number, there)) if there == length && !taken.contains(&number) => {
                    return number;
                }
                _ => {}
            }
        }
        // The loop ends: its numbers are unbounded.
        self.declare(name.to_owned(), length)
    }

    fn declare(&mut self, name: String, length: u64) -> usize {
        let number = self.all.len();
        self.all.push(Dimension {
            name: name.clone(),
            length,
            is_unlimited: false,
        });
        if let Some(scope) = self.open.last_mut() {
            scope.names.insert(name, number);
            scope.declared.push(number);
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(scopes: Scopes) -> Vec<String> {
        let all = scopes.into_dimensions().into_iter();
        all.map(|dimension| dimension.name).collect()
    }

    #[test]
    fn a_name_means_one_length_in_a_group() {
        let mut scopes = Scopes::default();
        scopes.enter([]);
        let x = scopes.dimension("x", 3, &[]);
        assert_eq!(scopes.dimension("x", 3, &[]), x);
        let other = scopes.dimension("x", 4, &[]);
        let twice = scopes.dimension("x", 3, &[x]);
        scopes.enter([]);
        let inner = scopes.dimension("x", 5, &[]);
        assert_eq!(scopes.find("x"), Some((inner, 5)));
        assert_eq!(scopes.leave(), [inner]);
        assert_eq!(scopes.find("x"), Some((x, 3)));
        assert_eq!(scopes.leave(), [x, other, twice]);
        assert_eq!(names(scopes), ["x", "x_4", "x_2", "x"]);
    }

    #[test]
    fn names_in_use_are_not_declared_again() {
        let mut scopes = Scopes::default();
        scopes.enter(["time".to_owned()]);
        let x = scopes.dimension("x", 3, &[]);
        let time = scopes.dimension("time", 2, &[]);
        scopes.enter([]);
        assert_eq!(scopes.dimension("x", 3, &[]), x);
        let other = scopes.dimension("x", 5, &[]);
        assert_eq!(scopes.dimension("x", 3, &[]), x);
        assert_eq!(scopes.leave(), [other]);
        assert_eq!(scopes.leave(), [x, time]);
        assert_eq!(names(scopes), ["x", "time_2", "x_5"]);
    }

    #[test]
    fn names_stay_short() {
        let mut scopes = Scopes::default();
        scopes.enter([]);
        let long = "ä".repeat(128);
        scopes.dimension(&long, 6, &[]);
        scopes.dimension(&long, 7, &[]);
        assert!(names(scopes).iter().all(|name| name.len() <= 256));
    }
}
