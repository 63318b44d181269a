//! Replies of the Hub: the attributes in headers, pages of listings, and refusals.

use http::StatusCode;
use http::header::{CONTENT_LENGTH, ETAG, HeaderMap, LINK};
use reqwest::Response;
use serde_json::Value;

use super::denied;
use crate::store::check_component;
use crate::store::remote::protocol::web;
use crate::store::remote::request::{Meta, Page, RequestError};

/// Number of characters of a message of the Hub that are shown.
const MAX_SHOWN_CHARS: usize = 300;
/// The longest hash or ETag that is used in bytes.
const MAX_TAG_BYTES: usize = 512;

/// What redirects of the Hub say of a file.
#[derive(Debug, Default)]
pub(super) struct Described {
    /// The attributes of the content to which a redirect leads.
    pub(super) linked: Option<Meta>,
}

impl Described {
    /// Adds the headers of a redirect. `commit` is the revision, if it is the hash of a commit.
    ///
    /// # Errors
    /// The file is of another commit.
    pub(super) fn add(
        &mut self,
        headers: &HeaderMap,
        commit: Option<&str>,
    ) -> Result<(), RequestError> {
        let of = text(headers, "x-repo-commit");
        if let (Some(commit), Some(of)) = (commit, of)
            && commit != of
        {
            let what = format!("the Hub sends the file of another commit, {of}");
            return Err(RequestError::lasting(what));
        }
        let size = text(headers, "x-linked-size").and_then(|size| size.parse().ok());
        // In a bucket, the hash of Xet storage is in listings too.
        let tag = text(headers, "x-linked-etag").or_else(|| text(headers, "x-xet-hash"));
        if let (Some(size_bytes), Some(tag)) = (size, tag) {
            self.linked = Some(meta(size_bytes, tag));
        }
        Ok(())
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let value = headers.get(name)?.to_str().ok()?.trim();
    (1..=MAX_TAG_BYTES).contains(&value.len()).then_some(value)
}

fn meta(size_bytes: u64, tag: &str) -> Meta {
    Meta {
        size_bytes,
        etag: Some(format!("\"{}\"", tag.trim_matches('"'))),
        modified: None,
    }
}

/// Parses the response to HEAD of a file that the Hub sends itself.
pub(super) fn of_head(response: &Response) -> Result<Meta, RequestError> {
    check_version(response)?;
    let headers = response.headers();
    let size = text(headers, CONTENT_LENGTH.as_str()).and_then(|size| size.parse().ok());
    let tag = text(headers, ETAG.as_str()).map(|tag| tag.trim_start_matches("W/"));
    match (size, tag) {
        (Some(size_bytes), Some(tag)) => Ok(meta(size_bytes, tag)),
        _ => Err(RequestError::lasting("the Hub sends no size of the file")),
    }
}

/// Fails if a response has no version: it is then no file of the Hub, but for example a page in its place.
pub(super) fn check_version(response: &Response) -> Result<(), RequestError> {
    match response.headers().contains_key(ETAG) {
        true => Ok(()),
        false => Err(RequestError::lasting(
            "the response has no ETag, so it is no file of the Hub (check HF_ENDPOINT or --endpoint-url)",
        )),
    }
}

/// Returns the error for a response of the Hub that is no success. Only a 404 that does not name the repository or
/// its revision proves that a key does not exist.
pub(super) fn refusal(status: StatusCode, headers: &HeaderMap) -> RequestError {
    let code = text(headers, "x-error-code").unwrap_or_default();
    let message = text(headers, "x-error-message").unwrap_or_default();
    let mut what = status.to_string();
    for part in [code, message].into_iter().filter(|part| !part.is_empty()) {
        what = format!("{what}: {part}");
    }
    let what = what.chars().take(MAX_SHOWN_CHARS).collect();
    match (web::refusal(status, headers), code) {
        (RequestError::NotFound, "" | "EntryNotFound") => RequestError::NotFound,
        (RequestError::NotFound | RequestError::Denied(_), _) => denied(what, status),
        (error, _) => error,
    }
}

/// Returns the query of the next page in the header `Link` (RFC 8288). Only the query is used, so that the token is
/// sent to the endpoint alone.
///
/// # Errors
/// The header cannot be parsed: a listing that ends there would lack names.
pub(super) fn next_page(headers: &HeaderMap) -> Result<Option<String>, RequestError> {
    for link in headers.get_all(LINK) {
        let mut rest = link.to_str().map_err(|_| unknown_link())?.trim();
        while !rest.is_empty() {
            let target = rest.strip_prefix('<').and_then(|rest| rest.split_once('>'));
            let (target, behind) = target.ok_or_else(unknown_link)?;
            let (parameters, others) = split_parameters(behind);
            if parameters.into_iter().any(is_next) {
                let query = target.split_once('?').ok_or_else(unknown_link)?.1;
                return Ok(Some(query.to_owned()));
            }
            rest = others.trim();
        }
    }
    Ok(None)
}

fn unknown_link() -> RequestError {
    RequestError::lasting("the header Link of a listing names no next page that is understood")
}

/// Splits the parameters of a link from the links behind them. A quoted value may contain separators.
fn split_parameters(text: &str) -> (Vec<&str>, &str) {
    let (mut parameters, mut start, mut is_quoted) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b';' | b',' if !is_quoted => {
                parameters.extend(text.get(start..at));
                start = at + 1;
                if byte == b',' {
                    return (parameters, text.get(start..).unwrap_or_default());
                }
            }
            _ => {}
        }
    }
    parameters.extend(text.get(start..));
    (parameters, "")
}

/// Returns whether a parameter is the relation `next`, alone or among others.
fn is_next(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else {
        return false;
    };
    let mut relations = value.trim().trim_matches('"').split_ascii_whitespace();
    name.trim().eq_ignore_ascii_case("rel")
        && relations.any(|relation| relation.eq_ignore_ascii_case("next"))
}

/// Parses a page of the directory `path`. If the Hub `lists_by_text`, entries beside the directory are skipped, whose
/// paths only begin with the same text.
pub(super) fn page(body: &[u8], path: &[u8], lists_by_text: bool) -> Result<Page, RequestError> {
    let unknown = || RequestError::lasting("the listing is not one of the Hub");
    let listing: Value = serde_json::from_slice(body).map_err(|_| unknown())?;
    let mut page = Page {
        is_complete: true,
        ..Page::default()
    };
    for entry in listing.as_array().ok_or_else(unknown)? {
        let own = entry["path"].as_str().ok_or_else(unknown)?.as_bytes();
        let name = match path.is_empty() {
            true => Some(own),
            false => own
                .strip_prefix(path)
                .and_then(|own| own.strip_prefix(b"/")),
        };
        if name.is_none() && lists_by_text {
            continue;
        }
        let name = name.filter(|name| check_component(name).is_ok());
        let Some(name) = name.map(<[u8]>::to_vec) else {
            page.is_complete = false;
            continue;
        };
        match entry["type"].as_str() {
            Some("directory") => page.prefixes.push(name),
            Some("file") => page
                .objects
                .push((name, Some(of_entry(entry).ok_or_else(unknown)?))),
            // A submodule, or a newer type.
            _ => page.is_complete = false,
        }
    }
    Ok(page)
}

/// Parses a page, and its text as a header `Link`; returns the number of names.
#[cfg(feature = "fuzzing")]
pub fn fuzz_hub_page(body: &[u8]) -> usize {
    let headers = http::HeaderValue::from_bytes(body);
    if let Ok(link) = headers {
        let _ = next_page(&HeaderMap::from_iter([(LINK, link)]));
    }
    let pages = [page(body, b"", false), page(body, b"a", true)];
    let names = pages.iter().flatten();
    names
        .map(|page| page.objects.len() + page.prefixes.len())
        .sum()
}

/// Returns the attributes of a listed file. A file in large storage has the hash of its content in `lfs`, and in
/// `oid` that of its pointer; in a bucket, `xetHash` is all that it has.
fn of_entry(entry: &Value) -> Option<Meta> {
    let tags = [&entry["lfs"]["oid"], &entry["oid"], &entry["xetHash"]];
    let tag = tags.into_iter().find_map(Value::as_str)?;
    let is_short = (1..=MAX_TAG_BYTES).contains(&tag.len());
    is_short.then_some(meta(entry["size"].as_u64()?, tag))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;

    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_str(text).unwrap();
        let all = all
            .iter()
            .map(|(name, text)| (name.parse().unwrap(), value(text)));
        all.collect()
    }

    #[test]
    fn the_version_of_a_redirect_is_that_of_the_listing() {
        let mut found = Described::default();
        let redirect = headers(&[("x-linked-size", "7"), ("x-linked-etag", "\"abc\"")]);
        found.add(&redirect, None).unwrap();
        let listing = json!([
            {"type": "file", "path": "d/a", "size": 7, "oid": "pointer", "lfs": {"oid": "abc"}},
            {"type": "file", "path": "d/b", "size": 1, "oid": "git"},
            {"type": "file", "path": "d/c", "size": 2, "xetHash": "xet"},
            {"type": "directory", "path": "d/e", "oid": "tree"},
        ]);
        let page = page(listing.to_string().as_bytes(), b"d", false).unwrap();
        let tags = page.objects.iter().map(|(name, meta)| {
            let meta = meta.as_ref().unwrap();
            (&name[..], meta.opaque_tag().unwrap())
        });
        let tags: Vec<_> = tags.collect();
        assert_eq!(tags, [(&b"a"[..], "abc"), (b"b", "git"), (b"c", "xet")]);
        assert_eq!(page.prefixes, [b"e"]);
        assert!(page.is_complete);
        assert!(
            page.objects[0]
                .1
                .as_ref()
                .unwrap()
                .is_same(&found.linked.unwrap())
        );
        let other = headers(&[("x-repo-commit", "b")]);
        assert!(Described::default().add(&other, Some("a")).is_err());
    }

    #[test]
    fn a_listing_with_names_that_cannot_be_shown_is_incomplete_and_others_are_errors() {
        let listing = json!([{"type": "file", "path": "../x", "size": 1, "oid": "a"},
                             {"type": "link", "path": "y"}]);
        let found = page(listing.to_string().as_bytes(), b"", false).unwrap();
        assert!(found.objects.is_empty() && !found.is_complete);
        for wrong in [
            &b"<html>"[..],
            b"{}",
            br#"[{"type": "file", "path": "a"}]"#,
            b"[1]",
        ] {
            assert!(page(wrong, b"", false).is_err());
        }
    }

    #[test]
    fn the_next_page_is_a_query_for_the_same_endpoint() {
        let next = |text: &str| next_page(&headers(&[("link", text)])).unwrap();
        let query = Some("cursor=a%3D&limit=2".to_owned());
        for link in [
            "<https://elsewhere/api/x?cursor=a%3D&limit=2>; rel=\"next\"",
            "<https://h/x?cursor=a%3D&limit=2>;REL=Next",
            "<https://h/x?b>; rel=prev; title=\"a, b; c\", <https://h/x?cursor=a%3D&limit=2>; rel=\"last next\"",
        ] {
            assert_eq!(next(link), query, "{link}");
        }
        let link = "<https://h/x?cursor=a,b;c>; rel=next";
        assert_eq!(next(link).as_deref(), Some("cursor=a,b;c"));
        assert_eq!(next("<https://h/x?a=1>; rel=\"prev\""), None);
        assert_eq!(next_page(&HeaderMap::new()).unwrap(), None);
    }

    #[test]
    fn a_next_page_that_is_not_understood_is_no_end_of_a_listing() {
        for link in [
            "<https://h/x>; rel=next",
            "https://h/x?a; rel=next",
            "<https://h/x?a; rel=next",
        ] {
            assert!(next_page(&headers(&[("link", link)])).is_err(), "{link}");
        }
    }

    #[test]
    fn keys_that_begin_with_the_same_text_are_not_in_a_directory_of_a_bucket() {
        let listing = json!([{"type": "file", "path": "c/1/0", "size": 1, "xetHash": "a"},
                             {"type": "file", "path": "c/10", "size": 1, "xetHash": "b"}]);
        let found = page(listing.to_string().as_bytes(), b"c/1", true).unwrap();
        assert!(found.is_complete && found.objects.len() == 1);
        assert_eq!(found.objects[0].0, b"0");
    }

    #[test]
    fn a_refusal_proves_absence_only_of_an_entry() {
        let refused = |status: u16, code: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            refusal(status, &headers(&[("x-error-code", code)]))
        };
        assert!(matches!(
            refused(404, "EntryNotFound"),
            RequestError::NotFound
        ));
        for (status, code) in [
            (404, "RepoNotFound"),
            (404, "RevisionNotFound"),
            (401, "RepoNotFound"),
            (403, "GatedRepo"),
        ] {
            match refused(status, code) {
                RequestError::Denied(refusal) => assert!(refusal.what.contains(code)),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(refused(429, "x"), RequestError::Failed(_)));
    }
}
