//! Locations of virtual chunks: URLs, or paths relative to a container (Icechunk documentation, "Virtual
//! datasets").

use percent_encoding::percent_decode_str;

use super::format::FormatError;
use crate::store::remote::has_escaped_path;
use crate::store::url_scheme::with_lower_scheme;

/// The scheme of locations that are relative to a container.
const CONTAINER_SCHEME: &str = "vcc://";

/// Converts a location to the name of a target: the path of a file, the URL of a web server, or the URL of a
/// bucket with the decoded key.
pub(super) fn target(
    location: &str,
    containers: &Result<Vec<(String, String)>, FormatError>,
) -> Result<String, FormatError> {
    let Some(relative) = location.strip_prefix(CONTAINER_SCHEME) else {
        return plain(location);
    };
    let (name, path) = relative.split_once('/').unwrap_or((relative, ""));
    let containers = containers.as_ref().map_err(Clone::clone)?;
    match containers.iter().find(|(known, _)| known == name) {
        Some((_, prefix)) => plain(&format!("{prefix}{path}")),
        None => Err(FormatError::Unsupported(format!(
            "the container {} of virtual chunks, which its configuration does not have",
            name.escape_debug()
        ))),
    }
}

/// Decodes the path in a URL of a file or of an object in a bucket, and drops a query.
fn plain(url: &str) -> Result<String, FormatError> {
    let lower = with_lower_scheme(url);
    let url = lower.as_ref();
    let Some((scheme, rest)) = url.split_once("://").filter(|_| !has_escaped_path(url)) else {
        return Ok(url.to_owned());
    };
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let rest = percent_decode_str(rest.get(..end).unwrap_or(rest)).decode_utf8();
    let rest = rest.map_err(|_| FormatError::Unsupported("a location that is not UTF-8".into()))?;
    Ok(format!("{scheme}://{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_urls_or_relative_to_a_container() {
        let containers = Ok(vec![("data".to_owned(), "s3://bucket/a/".to_owned())]);
        for (location, expected) in [
            ("s3://bucket/key", Some("s3://bucket/key")),
            ("s3://bucket/a%3Fb%23c%25?x=1", Some("s3://bucket/a?b#c%")),
            ("S3://Bucket/k%25", Some("s3://Bucket/k%")),
            ("file:///data/x%20y.nc#z", Some("file:///data/x y.nc")),
            ("https://host/x%20y?z", Some("https://host/x%20y?z")),
            ("vcc://data/b/c%20d", Some("s3://bucket/a/b/c d")),
            ("vcc://data", Some("s3://bucket/a/")),
            ("vcc://other/b", None),
            ("s3://bucket/%ff", None),
        ] {
            let found = target(location, &containers).ok();
            assert_eq!(found.as_deref(), expected, "{location}");
        }
        let unreadable = Err(FormatError::malformed("no map"));
        assert!(target("vcc://data/b", &unreadable).is_err());
        assert!(target("s3://bucket/key", &unreadable).is_ok());
    }
}
