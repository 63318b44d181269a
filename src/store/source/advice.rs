//! Advice for users whose SOURCE cannot be opened.

use std::io;
use std::path::{Path, PathBuf};

use crate::store::remote::{is_remote_url, missing_feature, remote_examples, remote_schemes};

/// Largest edit distance between a word and a suggestion.
const MAX_EDITS: usize = 2;
/// The largest number of names in a directory that are compared.
const MAX_NAMES: usize = 10_000;

/// Returns advice for a URL with an unknown scheme: the intended scheme, another program, or the forms of all URLs.
pub(super) fn of_scheme(scheme: &str) -> String {
    match scheme {
        "ssh" | "sftp" | "scp" => {
            return "mount the directory with sshfs, and give its path".to_owned();
        }
        "ftp" | "ftps" | "dav" | "webdav" => {
            return "mount the directory with rclone, and give its path".to_owned();
        }
        _ => {}
    }
    if let Some(feature) = missing_feature(scheme) {
        return format!("this build lacks them: build zarrfs with `--features {feature}`");
    }
    let near = remote_schemes().map(|known| (strsim::damerau_levenshtein(scheme, known), known));
    match near.min() {
        Some((1..=MAX_EDITS, known)) if scheme.len() > MAX_EDITS => {
            format!("did you mean `{known}`?")
        }
        _ => {
            let examples: Vec<_> = remote_examples().collect();
            format!("a SOURCE is a path, or a URL: {}", examples.join(", "))
        }
    }
}

/// Returns advice for a path that cannot be opened; empty if there is none.
pub(super) fn of_path(path: &Path, error: &io::Error) -> String {
    if error.kind() != io::ErrorKind::NotFound {
        return String::new();
    }
    let text = path.to_string_lossy();
    if let Some((scheme, rest)) = text.split_once(':') {
        let url = format!("{scheme}://{}", rest.trim_start_matches('/'));
        if is_remote_url(&url) {
            return format!("; did you mean {url}?");
        }
    }
    if let Some((source, key)) = text.rsplit_once(':')
        && !source.is_empty()
        && Path::new(source).exists()
    {
        return format!("; {source} exists: --path {key} chooses a key in it");
    }
    let above = path.ancestors().skip(1).find(|above| above.exists());
    match above {
        Some(above) if above != Path::new("") && Some(above) != path.parent() => {
            format!("; check the path, which exists up to {}", above.display())
        }
        _ => near_name(path).map_or_else(
            || "; check the path".to_owned(),
            |near| format!("; did you mean {}?", near.display()),
        ),
    }
}

/// Returns the path beside another one whose name is most similar, if any is.
fn near_name(path: &Path) -> Option<PathBuf> {
    let wanted = path.file_name()?.to_str()?;
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let entries = std::fs::read_dir(parent.unwrap_or(Path::new("."))).ok()?;
    let names = entries
        .take(MAX_NAMES)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let edits = names.map(|name| (strsim::damerau_levenshtein(wanted, &name), name));
    let (edits, name) = edits.min()?;
    (edits <= MAX_EDITS && wanted.len() > MAX_EDITS).then(|| path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_url_has_a_suggestion_or_all_kinds() {
        for (scheme, expected) in [
            ("htps", "did you mean `https`?"),
            ("htpp", "did you mean `http`?"),
            ("ssh", "sshfs"),
            (
                "gopher",
                "a SOURCE is a path, or a URL: https://HOST/PATH, s3",
            ),
            ("x", "a SOURCE is a path, or a URL: https://HOST/PATH, s3"),
        ] {
            let advice = of_scheme(scheme);
            assert!(advice.contains(expected), "{scheme}: {advice}");
        }
    }

    #[test]
    fn a_path_that_does_not_exist_may_be_a_url() {
        let missing = io::Error::from(io::ErrorKind::NotFound);
        let advice = |path: &str| of_path(Path::new(path), &missing);
        assert_eq!(advice("s3:/b/x"), "; did you mean s3://b/x?");
        assert_eq!(advice("s3:b"), "; did you mean s3://b?");
        assert_eq!(advice("nosuch.zarr"), "; check the path");
        assert_eq!(
            advice("/proc:a/b"),
            "; /proc exists: --path a/b chooses a key in it"
        );
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ocean.zarr"), "").unwrap();
        let near = directory.path().join("ocen.zarr");
        let expected = format!("; did you mean {}/ocean.zarr?", directory.path().display());
        assert_eq!(of_path(&near, &missing), expected);
        let advice = advice("/proc/nosuch/deeper");
        assert_eq!(advice, "; check the path, which exists up to /proc");
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(of_path(Path::new("x"), &denied), "");
    }
}
