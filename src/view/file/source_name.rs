//! The name of a source, which names the views of its root.

use percent_encoding::percent_decode_str;

use crate::store::has_escaped_path;

/// Extensions of hierarchies and of their containers, which are removed from the name of a source.
const EXTENSIONS: [&str; 21] = [
    "zarr", "zarr2", "zarr3", "vcz", "ome", "zip", "n5", "icechunk", "sqlite", "sqlite3", "db",
    "lmdb", "mdb", "gdbm", "dbm", "bdb", "dat", "json", "kerchunk", "parquet", "parq",
];

/// The maximum length of the name in bytes: with any suffix, the name of a view has at most 255 bytes.
const MAX_BYTES: usize = 200;

/// Returns the last component of a path or a URL without its extensions, as a file name; `None` if
/// nothing is left.
pub(in crate::view) fn source_name(label: &str) -> Option<String> {
    let component = last_component(label);
    let decoded = match has_escaped_path(label) {
        true => percent_decode_str(component).decode_utf8_lossy(),
        false => component.into(),
    };
    let mut name: &str = &decoded;
    while let Some((stem, extension)) = name.rsplit_once('.')
        && EXTENSIONS
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
    {
        name = stem;
    }
    let is_invalid = |c: char| c == '/' || c.is_control();
    let mut bytes = 0;
    let is_short = |c: &char| -> bool {
        bytes += c.len_utf8();
        bytes <= MAX_BYTES
    };
    let name = name.replace(is_invalid, "_");
    let name: String = name.chars().take_while(is_short).collect();
    let is_name = name.chars().any(|c| c != '.' && !c.is_whitespace());
    is_name.then_some(name)
}

/// Returns the last component of a path, or of the path of a URL; its host or bucket if the URL has no path.
fn last_component(label: &str) -> &str {
    let Some((_, behind)) = label.split_once("://") else {
        let path = label.trim_end_matches(['/', ':']);
        return path.rsplit('/').next().unwrap_or_default();
    };
    let end = behind.find(['?', '#', '|']).unwrap_or(behind.len());
    let path = behind.get(..end).unwrap_or_default().trim_end_matches('/');
    match path.rsplit_once('/') {
        Some((_, last)) => last,
        None => {
            let host = path.rsplit('@').next().unwrap_or_default();
            host.split(':').next().unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_last_component_without_extensions() {
        for (label, expected) in [
            ("ocean.zarr", Some("ocean")),
            ("/data/ocean.zarr.zip", Some("ocean")),
            ("/data/ocean.ZARR/", Some("ocean")),
            ("s3://bucket/x/ocean.zarr", Some("ocean")),
            ("s3://bucket", Some("bucket")),
            ("https://u@h:80/", Some("h")),
            ("https://h/my%20sea%2f1.zarr?sig=1", Some("my sea_1")),
            ("s3://b/ocean.zarr.zip|zip:", Some("ocean")),
            ("ocean.sqlite", Some("ocean")),
            ("refs/combined.parq", Some("combined")),
            ("ocean.v2.zarr/sst", Some("sst")),
            ("ocean.v2.zarr", Some("ocean.v2")),
            ("demo", Some("demo")),
            ("a\nb.zarr", Some("a_b")),
            ("redis://h:6379/0", Some("0")),
            (".hidden.zarr", Some(".hidden")),
            (".zarr", None),
            ("..", None),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(source_name(label).as_deref(), expected, "{label}");
        }
    }

    #[test]
    fn a_long_name_is_truncated_at_a_character() {
        let name = source_name(&"ü".repeat(300)).unwrap();
        assert_eq!(name, "ü".repeat(MAX_BYTES / 2));
    }
}
