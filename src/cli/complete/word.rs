//! Words of a shell command line.

use std::path::PathBuf;

/// The largest length of a description in characters.
const MAX_DESCRIPTION: usize = 60;

/// Removes bash quotes and backslashes from a word. A quote may be unclosed; variables stay.
pub(super) fn unquoted(word: &str) -> String {
    let mut plain = String::new();
    let mut quote = None;
    let mut signs = word.chars().peekable();
    while let Some(sign) = signs.next() {
        match (quote, sign) {
            (None, '\'' | '"') => quote = Some(sign),
            (Some(open), sign) if sign == open => quote = None,
            (None, '\\') => plain.extend(signs.next()),
            (Some('"'), '\\') => match signs.next_if(|next| "\\\"$`".contains(*next)) {
                Some(next) => plain.push(next),
                None => plain.push('\\'),
            },
            (_, sign) => plain.push(sign),
        }
    }
    plain
}

/// Returns a path with `~` replaced by the home directory.
pub(super) fn home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => path.into(),
    }
}

/// Returns the first sentence of a description in one line, shortened.
pub(super) fn first_sentence(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = text.find([';', ':', '[']).unwrap_or(text.len());
    let sentence = text.get(..end).unwrap_or_default().trim_end();
    match sentence.chars().count() > MAX_DESCRIPTION {
        true => sentence
            .chars()
            .take(MAX_DESCRIPTION)
            .chain(['.', '.', '.'])
            .collect(),
        false => sentence.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_are_those_of_a_shell() {
        for (word, plain) in [
            ("a\\ b", "a b"),
            ("'a \\b'c", "a \\bc"),
            ("\"a \\$b\\c", "a $b\\c"),
            ("'open q", "open q"),
            ("a\\", "a"),
            ("it\"'\"s", "it's"),
        ] {
            assert_eq!(unquoted(word), plain, "{word}");
        }
    }

    #[test]
    fn a_description_is_one_short_sentence() {
        assert_eq!(first_sentence("Size of\n it [default: 1]"), "Size of it");
        assert_eq!(
            first_sentence(&"long ".repeat(30)).chars().count(),
            MAX_DESCRIPTION + 3
        );
    }
}
