//! The formats that the directories of views list.

use std::str::FromStr;

use super::Format;
use crate::translate::Target;

/// The formats and translations that directories list; the others can be opened by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatSet {
    /// `None` is the default.
    formats: Option<Vec<Format>>,
    translations: Vec<Target>,
}

impl FormatSet {
    /// Returns whether the directory of an array, or of a group, lists a format. Formats of every node are
    /// always listed.
    pub fn lists(&self, format: Format, is_of_array: bool) -> bool {
        format.is_always_listed()
            || match &self.formats {
                Some(formats) => formats.contains(&format),
                None if is_of_array && format.is_of_node() => false,
                None => format.is_listed_by_default(is_of_array),
            }
    }

    /// Returns whether a translation of the hierarchy is listed.
    pub fn lists_translation(&self, target: Target) -> bool {
        self.translations.contains(&target)
    }
}

impl Default for FormatSet {
    fn default() -> Self {
        Self {
            formats: None,
            translations: Target::ALL.to_vec(),
        }
    }
}

/// Parses names separated by `,`, `+` or `:`, or `all`; an empty list means the default.
impl FromStr for FormatSet {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let words = list.split([',', '+', ':']).filter(|word| !word.is_empty());
        if words.clone().next().is_none() {
            return Ok(Self::default());
        }
        let (mut formats, mut translations) = (Vec::new(), Vec::new());
        for word in words {
            match Target::ALL.into_iter().find(|target| target.name() == word) {
                _ if word == "all" => {
                    formats.extend(Format::all());
                    translations.extend(Target::ALL);
                }
                Some(target) => translations.push(target),
                None => formats.push(word.parse()?),
            }
        }
        Ok(Self {
            formats: Some(formats),
            translations,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(word: &str) -> Format {
        word.parse().unwrap()
    }

    #[test]
    fn the_default_lists_few_formats_of_groups_and_all_of_an_array() {
        let (default, all): (FormatSet, FormatSet) = ("".parse().unwrap(), "all".parse().unwrap());
        for (word, of_group, of_array) in [
            ("nc", true, true),
            ("npy", true, true),
            ("readme", true, true),
            ("bin", false, true),
            ("chunks", false, true),
            ("cdf", false, true),
            ("views", false, false),
        ] {
            let listed = |is_of_array| default.lists(format(word), is_of_array);
            assert_eq!(
                (listed(false), listed(true)),
                (of_group, of_array),
                "{word}"
            );
            assert!(all.lists(format(word), false), "{word}");
        }
        assert!(
            Target::ALL
                .iter()
                .all(|target| default.lists_translation(*target))
        );
        assert!(
            Target::ALL
                .iter()
                .all(|target| all.lists_translation(*target))
        );
    }

    #[test]
    fn unknown_names_of_a_list_are_reported() {
        let set: FormatSet = "npy,chunks".parse().unwrap();
        let lists = |set: &FormatSet, word| set.lists(format(word), true);
        assert!(lists(&set, "npy") && lists(&set, "readme") && !lists(&set, "bin"));
        assert_eq!("".parse(), Ok(FormatSet::default()));
        assert!(!set.lists_translation(Target::V2));
        let set: FormatSet = "as-v2,npy,unsharded".parse().unwrap();
        assert!(set.lists_translation(Target::V2) && set.lists_translation(Target::Unsharded));
        assert!(!set.lists_translation(Target::V3) && lists(&set, "npy"));
        assert!(
            "npy,doc"
                .parse::<FormatSet>()
                .unwrap_err()
                .contains("`doc`")
        );
    }
}
