//! Dimensions of groups inside groups: a name stands for one length in a group and in the groups
//! below it, unless they declare it again.

use std::collections::HashMap;

use super::Dimension;

/// The dimensions of the groups from the root down to the current one.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    all: Vec<Dimension>,
    /// Name to number, for each group on the way down.
    open: Vec<HashMap<String, usize>>,
    /// What each group declares, in order.
    declared: Vec<Vec<usize>>,
    /// Decoded text that is in variables so far.
    pub(super) text_bytes: usize,
}

impl Scopes {
    pub(super) fn enter(&mut self) {
        self.open.push(HashMap::new());
        self.declared.push(Vec::new());
    }

    /// What the group has declared.
    pub(super) fn leave(&mut self) -> Vec<usize> {
        self.open.pop();
        self.declared.pop().unwrap_or_default()
    }

    pub(super) fn into_dimensions(self) -> Vec<Dimension> {
        self.all
    }

    /// The dimension that a name means in the current group.
    pub(super) fn find(&self, name: &str) -> Option<(usize, u64)> {
        let number = self.open.iter().rev().find_map(|names| names.get(name))?;
        Some((*number, self.all.get(*number)?.length))
    }

    /// Whether the current group itself declares a name, and with which length.
    fn own(&self, name: &str) -> Option<u64> {
        let number = self.open.last()?.get(name)?;
        Some(self.all.get(*number)?.length)
    }

    /// A dimension of this length, called `name` if that is possible in the current group. None of
    /// `taken` is given: a variable has each dimension once.
    pub(super) fn dimension(&mut self, name: &str, length: u64, taken: &[usize]) -> usize {
        let mut candidate = name.to_owned();
        for attempt in 2_u64.. {
            match self.find(&candidate) {
                Some((number, there)) if there == length && !taken.contains(&number) => {
                    return number;
                }
                // A group may declare a name of the groups above again.
                Some((number, _)) if self.own(&candidate).is_none() && !taken.contains(&number) => {
                    return self.declare(candidate, length);
                }
                Some((number, there)) => {
                    candidate = match there == length || taken.contains(&number) {
                        true => format!("{name}_{attempt}"),
                        false if attempt == 2 => format!("{name}_{length}"),
                        false => format!("{name}_{length}_{attempt}"),
                    };
                }
                None => return self.declare(candidate, length),
            }
        }
        self.declare(candidate, length)
    }

    fn declare(&mut self, name: String, length: u64) -> usize {
        let number = self.all.len();
        self.all.push(Dimension {
            name: name.clone(),
            length,
        });
        if let (Some(names), Some(declared)) = (self.open.last_mut(), self.declared.last_mut()) {
            names.insert(name, number);
            declared.push(number);
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_one_length_in_a_group() {
        let mut scopes = Scopes::default();
        scopes.enter();
        let x = scopes.dimension("x", 3, &[]);
        assert_eq!(scopes.dimension("x", 3, &[]), x);
        let other = scopes.dimension("x", 4, &[]);
        let twice = scopes.dimension("x", 3, &[x]);
        scopes.enter();
        assert_eq!(scopes.dimension("x", 3, &[]), x);
        let inner = scopes.dimension("x", 5, &[]);
        assert_eq!(scopes.find("x"), Some((inner, 5)));
        assert_eq!(scopes.leave(), [inner]);
        assert_eq!(scopes.find("x"), Some((x, 3)));
        assert_eq!(scopes.leave(), [x, other, twice]);
        let names = scopes.into_dimensions();
        let names: Vec<_> = names.iter().map(|dimension| &dimension.name[..]).collect();
        assert_eq!(names, ["x", "x_4", "x_2", "x"]);
    }
}
