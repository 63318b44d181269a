//! The page that a web server generates for a directory, as JSON or HTML.

use html5gum::{Token, Tokenizer};
use http::header::CONTENT_TYPE;
use reqwest::{Response, Url};
use serde_json::Value;

use super::address::decoded;
use super::response;
use crate::store::remote::request::arrival::Arrival;
use crate::store::remote::request::{Page, RequestError};
use crate::store::{Kind, check_component};

/// Size limit of a page in bytes.
const MAX_PAGE_BYTES: u64 = 64 << 20;

/// Parses the response to a request for a directory.
pub(super) async fn read(url: &Url, response: Response) -> Result<Page, RequestError> {
    let status = response.status();
    match status.as_u16() {
        200 => {}
        // Statuses with which most servers refuse to list.
        400..=406 | 410 | 501 => {
            let what = format!("the server does not list it ({status})");
            return Err(RequestError::NoListing(what));
        }
        _ => return Err(response::refusal(status, response.headers())),
    }
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.to_ascii_lowercase();
    let is_json = kind.contains("json");
    if !is_json && !kind.contains("html") {
        let what = "the server sends no list for it".into();
        return Err(RequestError::NoListing(what));
    }
    let received = response::body(
        response,
        None,
        MAX_PAGE_BYTES,
        response::ALL_BYTES,
        &Arrival::default(),
    )
    .await;
    let body = received.map_err(|(error, _)| error)?.bytes.into_bytes();
    let names = match is_json {
        true => of_json(&body),
        false => of_html(url, &body),
    };
    let names = names.ok_or_else(|| {
        RequestError::NoListing("what the server sends for it is not a list".into())
    })?;
    let mut page = Page::default();
    for (name, kind) in names {
        if check_component(&name).is_err() {
            continue;
        }
        match kind {
            Kind::Object => page.objects.push((name, None)),
            Kind::Prefix => page.prefixes.push(name),
        }
    }
    page.objects.sort_by(|one, other| one.0.cmp(&other.0));
    page.objects.dedup_by(|one, other| one.0 == other.0);
    page.prefixes.sort();
    page.prefixes.dedup();
    Ok(page)
}

/// Parses a page both as JSON and as HTML; returns the number of names.
#[cfg(feature = "fuzzing")]
pub fn fuzz_page(url: &Url, page: &[u8]) -> usize {
    let lists = [of_json(page), of_html(url, page)];
    lists.iter().flatten().map(Vec::len).sum()
}

type Names = Vec<(Vec<u8>, Kind)>;

/// Parses the lists of nginx (`type`), Caddy (`is_dir`) and `serve` of npm (`files`, with the names in `base`).
fn of_json(body: &[u8]) -> Option<Names> {
    let list = serde_json::from_slice(body).ok()?;
    let (entries, name_member) = match &list {
        Value::Array(entries) => (entries, "name"),
        Value::Object(list) => (list.get("files")?.as_array()?, "base"),
        _ => return None,
    };
    let name = |entry: &Value| {
        let name = entry.get(name_member)?.as_str()?;
        let kind = entry.get("type").and_then(Value::as_str);
        let is_prefix = name.ends_with('/')
            || entry.get("is_dir").and_then(Value::as_bool) == Some(true)
            || matches!(kind, Some("directory" | "folder"));
        let kind = if is_prefix {
            Kind::Prefix
        } else {
            Kind::Object
        };
        Some((name.trim_end_matches('/').as_bytes().to_vec(), kind))
    };
    Some(entries.iter().filter_map(name).collect())
}

/// Returns the links in a page that lead exactly one level down.
fn of_html(url: &Url, body: &[u8]) -> Option<Names> {
    let base = url.path().trim_end_matches('/');
    let mut names = Names::new();
    for token in Tokenizer::new(body) {
        let Ok(Token::StartTag(tag)) = token else {
            continue;
        };
        if **tag.name != *b"a" {
            continue;
        }
        let href = tag.attributes.iter().find(|(name, _)| ***name == *b"href");
        let href = href.and_then(|(_, value)| std::str::from_utf8(value).ok());
        let Some(target) = href.and_then(|href| url.join(href).ok()) else {
            continue;
        };
        // Links that sort the page have another query.
        let sorts = target.query().is_some() && target.query() != url.query();
        if target.origin() != url.origin() || sorts {
            continue;
        }
        // Servers escape other characters than this crate.
        let below = base
            .split('/')
            .zip(target.path().split('/'))
            .all(|(own, other)| decoded(own) == decoded(other))
            .then(|| target.path().split('/').skip(base.split('/').count()));
        let below: Vec<&str> = below.into_iter().flatten().collect();
        match below[..] {
            [name] if !name.is_empty() => names.push((decoded(name), Kind::Object)),
            [name, ""] if !name.is_empty() => names.push((decoded(name), Kind::Prefix)),
            _ => {}
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(names: Option<Names>) -> Vec<String> {
        let shown = names.unwrap().into_iter().map(|(name, kind)| {
            let slash = if kind == Kind::Prefix { "/" } else { "" };
            format!("{}{slash}", String::from_utf8(name).unwrap())
        });
        shown.collect()
    }

    #[test]
    fn links_that_lead_one_step_down_are_names() {
        let url = Url::parse("http://h/data/").unwrap();
        let page = br##"<html><a href="../">up</a><a href="?C=N;O=D">Name</a>
            <a href="a%20b">x</a><a href='sub/'>sub/</a> <A HREF="/data/abs">y</A>
            <a href="sub/deep">z</a><a href="http://other/data/q">w</a><a href="#f">v</a>
            <a class=x href=bare>u</a></html>"##;
        assert_eq!(shown(of_html(&url, page)), ["a b", "sub/", "abs", "bare"]);
        let url = Url::parse("http://h/x%2By%5B/").unwrap();
        let page = b"<a href='/x+y%5b/a'></a><a href='/x+y[/b/'></a><a href='/x+y/c'></a><a href='/x'></a>";
        assert_eq!(shown(of_html(&url, page)), ["a", "b/"]);
    }

    #[test]
    fn lists_in_json_are_read_as_three_servers_write_them() {
        let nginx = br#"[{"name":"d","type":"directory"},{"name":"f","type":"file","size":3}]"#;
        assert_eq!(shown(of_json(nginx)), ["d/", "f"]);
        let caddy = br#"[{"name":"d/","is_dir":true},{"name":"f","is_dir":false}]"#;
        assert_eq!(shown(of_json(caddy)), ["d/", "f"]);
        let serve = br#"{"files":[{"base":"..","type":"directory"},{"base":"d/","type":"folder"},
            {"base":"f.zarr","name":"f","type":"file"}],"directory":"x/"}"#;
        assert_eq!(shown(of_json(serve)), ["../", "d/", "f.zarr"]);
        assert!(of_json(b"{\"zarr_format\":2}").is_none());
    }
}
