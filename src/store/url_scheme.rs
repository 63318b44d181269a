//! The schemes of URLs.

use std::borrow::Cow;

/// Returns a URL with its scheme in lower case: schemes are case-insensitive (RFC 3986, 3.1). Other texts are returned
/// as they are.
pub fn with_lower_scheme(text: &str) -> Cow<'_, str> {
    match text.split_once("://") {
        Some((scheme, rest)) if is_upper_scheme(scheme) => {
            format!("{}://{rest}", scheme.to_ascii_lowercase()).into()
        }
        _ => text.into(),
    }
}

/// Whether a text can be a scheme and has capital letters.
fn is_upper_scheme(text: &str) -> bool {
    let is_in_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(is_in_scheme)
        && text.contains(|c: char| c.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_schemes_become_lower_case() {
        for (text, expected) in [
            ("HTTP://Host/Path", "http://Host/Path"),
            ("S3://Bucket/K", "s3://Bucket/K"),
            ("Redis+Unix:///S", "redis+unix:///S"),
            ("https://h/X", "https://h/X"),
            ("./DIR ://name", "./DIR ://name"),
            ("/A://b", "/A://b"),
            ("A/b", "A/b"),
        ] {
            assert_eq!(with_lower_scheme(text), expected);
        }
    }
}
