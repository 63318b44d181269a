//! Pages of ListObjectsV2, and directory pages of a web server.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::content::Content;
use super::message::{Request, Response};
use super::rules::s3_error;

/// A fault of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    Right,
    RepeatedToken,
    Empty,
    Truncated,
    WithoutStartAfter,
    Unsorted,
}

/// A character after which a key sorts behind all keys with the same prefix.
const BEHIND_ALL: char = char::MAX;

/// Returns a page of a bucket listing, with at most `most` names.
pub fn list(
    content: &Content,
    bucket: &str,
    request: &Request,
    page: Page,
    most: usize,
) -> Response {
    if request.query("list-type") != Some("2") {
        return s3_error(501, "NotImplemented", "only ListObjectsV2");
    }
    let prefix = request.query("prefix").unwrap_or_default();
    let delimiter = request.query("delimiter").filter(|d| !d.is_empty());
    let max = request.query("max-keys").unwrap_or("1000").parse();
    let Ok(max) = max.map(|max: usize| max.min(most)) else {
        return s3_error(400, "InvalidArgument", "max-keys is no number");
    };
    let token = request.query("continuation-token");
    let start = match token.map(from_token) {
        Some(None) => return s3_error(400, "InvalidArgument", "no such continuation token"),
        Some(Some(start)) => start,
        None if matches!(page, Page::WithoutStartAfter | Page::Unsorted) => String::new(),
        None => request.query("start-after").unwrap_or_default().to_owned(),
    };
    let wanted = if page == Page::Empty { 0 } else { max };
    let mut at = start.clone();
    let mut found = Found::default();
    while found.count() < wanted
        && let Some(key) = content.next(&at, prefix)
    {
        at = found.add(content, prefix, delimiter, key);
    }
    let mut is_truncated = wanted > 0 && content.next(&at, prefix).is_some();
    match page {
        Page::RepeatedToken => (is_truncated, at) = (true, start),
        Page::Empty => is_truncated = true,
        Page::Unsorted => found.values.reverse(),
        Page::Right | Page::Truncated | Page::WithoutStartAfter => {}
    }

    let encode = request.query("encoding-type") == Some("url");
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    xml += "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
    let _ = write!(
        xml,
        "<Name>{bucket}</Name><Prefix>{}</Prefix><KeyCount>{}</KeyCount><MaxKeys>{max}</MaxKeys>\
         <IsTruncated>{is_truncated}</IsTruncated>",
        text(prefix, encode),
        found.count(),
    );
    for (key, etag, modified, size) in &found.values {
        let _ = write!(
            xml,
            "<Contents><Key>{}</Key><LastModified>{modified}</LastModified>\
             <ETag>&quot;{}&quot;</ETag><Size>{size}</Size>\
             <StorageClass>STANDARD</StorageClass></Contents>",
            text(key, encode),
            etag.trim_matches('"'),
        );
    }
    for common in &found.common {
        let common = text(common, encode);
        let _ = write!(
            xml,
            "<CommonPrefixes><Prefix>{common}</Prefix></CommonPrefixes>"
        );
    }
    if is_truncated {
        let token = to_token(&at);
        let _ = write!(
            xml,
            "<NextContinuationToken>{token}</NextContinuationToken>"
        );
    }
    xml += "</ListBucketResult>";
    if page == Page::Truncated {
        xml.truncate(xml.len() * 2 / 3);
    }
    Response::with(200, "application/xml", xml)
}

/// The names of one page.
#[derive(Default)]
struct Found {
    values: Vec<(String, String, String, usize)>,
    common: BTreeSet<String>,
}

impl Found {
    fn count(&self) -> usize {
        self.values.len() + self.common.len()
    }

    /// Adds a key, or its common prefix. Returns the position at which the listing continues.
    fn add(
        &mut self,
        content: &Content,
        prefix: &str,
        delimiter: Option<&str>,
        key: String,
    ) -> String {
        let rest = &key[prefix.len()..];
        if let Some(delimiter) = delimiter
            && let Some(end) = rest.find(delimiter)
        {
            let common = format!("{prefix}{}{delimiter}", &rest[..end]);
            let behind = format!("{common}{BEHIND_ALL}");
            self.common.insert(common);
            return behind;
        }
        if let Some(entity) = content.get(&key) {
            let modified = iso_date(entity.modified);
            let size = entity.bytes.len();
            self.values.push((key.clone(), entity.etag, modified, size));
        }
        key
    }
}

const ENCODED: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_');

/// Returns text of a document, percent-encoded if the request asked for that.
fn text(text: &str, encode: bool) -> String {
    if encode {
        return percent_encoding::utf8_percent_encode(text, ENCODED).to_string();
    }
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn to_token(key: &str) -> String {
    key.bytes().fold(String::from("t"), |mut token, byte| {
        let _ = write!(token, "{byte:02x}");
        token
    })
}

fn from_token(token: &str) -> Option<String> {
    let digits = token.strip_prefix('t')?;
    let byte = |i: usize| u8::from_str_radix(digits.get(i..i + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    String::from_utf8(bytes?).ok()
}

/// Converts `Sat, 21 Nov 2026 10:24:00 GMT` to `2026-11-21T10:24:00.000Z`.
fn iso_date(time: std::time::SystemTime) -> String {
    let date = httpdate::fmt_http_date(time);
    let words: Vec<&str> = date.split(' ').collect();
    let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = months.find(words[2]).unwrap() / 3 + 1;
    format!("{}-{month:02}-{}T{}.000Z", words[3], words[1], words[4])
}

/// Returns a directory page like that of nginx, without names that begin with a dot.
pub fn autoindex(content: &Content, key: &str) -> Response {
    let prefix = if key.is_empty() {
        String::new()
    } else {
        format!("{key}/")
    };
    let mut names = BTreeSet::new();
    let mut at = String::new();
    while let Some(found) = content.next(&at, &prefix) {
        let rest = &found[prefix.len()..];
        let end = rest.find('/').map(|end| end + 1);
        let name = rest[..end.unwrap_or(rest.len())].to_owned();
        at = match end {
            Some(_) => format!("{prefix}{name}{BEHIND_ALL}"),
            None => found,
        };
        names.insert(name);
    }
    let mut page = format!("<html><head><title>Index of /{prefix}</title></head><body><pre>");
    page += "<a href=\"../\">../</a>\n";
    for name in names.iter().filter(|name| !name.starts_with('.')) {
        let _ = writeln!(
            page,
            "<a href=\"{}\">{}</a>",
            text(name, true),
            text(name, false)
        );
    }
    page += "</pre></body></html>\n";
    Response::with(200, "text/html", page)
}
