//! Dimensions of groups inside groups: a name stands for one length in a group and in the groups
//! below it, unless they declare it again.

use std::collections::{HashMap, HashSet};

use super::Dimension;

/// The dimensions of the groups from the root down to the current one.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    all: Vec<Dimension>,
    open: Vec<Scope>,
    /// Decoded text that is in variables so far.
    pub(super) text_bytes: usize,
    /// Coordinates that are computed so far.
    pub(super) coordinates: u64,
}

/// What one group says of names.
#[derive(Debug, Default)]
struct Scope {
    /// Name to number, of what the group declares.
    names: HashMap<String, usize>,
    /// What it declares, in order.
    declared: Vec<usize>,
    /// Names whose meaning in the group is settled. Readers look dimensions up by their names, so
    /// one that has been used is not declared anew.
    settled: HashSet<String>,
    /// Names of its groups: a file has each name once.
    groups: HashSet<String>,
}

/// The longest name before something is put behind it.
const MAX_STEM_BYTES: usize = 200;

impl Scopes {
    /// Goes down into a group which has groups of these names.
    pub(super) fn enter(&mut self, groups: impl IntoIterator<Item = String>) {
        self.open.push(Scope {
            groups: groups.into_iter().collect(),
            ..Scope::default()
        });
    }

    /// What the group has declared.
    pub(super) fn leave(&mut self) -> Vec<usize> {
        self.open
            .pop()
            .map(|scope| scope.declared)
            .unwrap_or_default()
    }

    pub(super) fn into_dimensions(self) -> Vec<Dimension> {
        self.all
    }

    /// The dimension that a name means in the current group.
    pub(super) fn find(&self, name: &str) -> Option<(usize, u64)> {
        let mut scopes = self.open.iter().rev();
        let number = scopes.find_map(|scope| scope.names.get(name))?;
        Some((*number, self.all.get(*number)?.length))
    }

    /// The dimension of this name and length that the current group declares.
    pub(super) fn declared_here(&self, name: &str, length: u64) -> Option<usize> {
        let number = *self.open.last()?.names.get(name)?;
        let is_so_long = self.all.get(number)?.length == length;
        is_so_long.then_some(number)
    }

    /// Settles what a name means in the current group, if that is open: what it means in the groups
    /// above if that has this length, else a dimension of its own. All names that a group uses are
    /// settled before the first of them is used.
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

    /// A dimension of this length, called `name` if that is what the name means in the current
    /// group. None of `taken` is given: a variable has each dimension once.
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
        // There is always a next number.
        self.declare(name.to_owned(), length)
    }

    fn declare(&mut self, name: String, length: u64) -> usize {
        let number = self.all.len();
        self.all.push(Dimension {
            name: name.clone(),
            length,
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
    fn a_name_that_was_used_is_not_declared_again() {
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
