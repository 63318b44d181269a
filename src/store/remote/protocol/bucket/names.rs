//! Removes keys from a listing that `object_store` cannot represent (`a//b`, `a/../b`). With one such
//! key it rejects the whole page, including the valid keys. Also removes the keys of directories (`a/`), which
//! the library would take for values without a slash.

use object_store::path::Path;
use quick_xml::escape::unescape;
use quick_xml::events::Event;
use quick_xml::{Reader, Writer};

/// The elements of one key or one prefix, each with the element that holds its name.
const ENTRIES: [(&str, &str); 4] = [
    ("Contents", "Key"),
    ("CommonPrefixes", "Prefix"),
    ("Blob", "Name"),
    ("BlobPrefix", "Name"),
];

/// The byte order mark in UTF-8, which a text has once at most.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A listing without the keys that were removed.
#[derive(Debug, Default)]
pub(super) struct Cleaned {
    pub(super) listing: Vec<u8>,
    /// Number of keys that cannot be represented.
    pub(super) odd: usize,
    /// Keys of directories, without the slash at the end.
    pub(super) directories: Vec<String>,
}

/// Returns the listing without such keys; `None` if the listing cannot be parsed.
pub(super) fn without_odd_keys(listing: &[u8]) -> Option<Cleaned> {
    let mut reader = Reader::from_reader(listing);
    let mut writer = Writer::new(Vec::with_capacity(listing.len()));
    let mut entry: Option<Entry<'_>> = None;
    let mut cleaned = Cleaned::default();
    loop {
        let event = reader.read_event().ok()?;
        if matches!(event, Event::Eof) {
            break;
        }
        match &mut entry {
            None => {
                if let Event::Start(start) = &event
                    && let Some((outer, inner)) = named(start.name().as_ref())
                {
                    entry = Some(Entry {
                        outer,
                        inner,
                        is_inside: false,
                        name: String::new(),
                        events: vec![event],
                    });
                    continue;
                }
                writer.write_event(event).ok()?;
            }
            Some(open) => {
                let is_end = open.take(event)?;
                if let (true, Some(whole)) = (is_end, entry.take_if(|_| is_end)) {
                    if whole.is_odd() {
                        cleaned.odd += 1;
                        continue;
                    }
                    if let Some(directory) = whole.directory() {
                        cleaned.directories.push(directory.to_owned());
                        continue;
                    }
                    for event in whole.events {
                        writer.write_event(event).ok()?;
                    }
                }
            }
        }
    }
    cleaned.listing = writer.into_inner();
    // The reader has dropped one byte order mark, and the next reader would drop another one.
    (!cleaned.listing.starts_with(BYTE_ORDER_MARK)).then_some(cleaned)
}

/// Returns the listing without keys that `object_store` cannot represent, and their number.
#[cfg(feature = "fuzzing")]
pub fn fuzz_listing(listing: &[u8]) -> Option<(Vec<u8>, usize)> {
    without_odd_keys(listing).map(|cleaned| (cleaned.listing, cleaned.odd))
}

fn named(element: &str) -> Option<(&'static str, &'static str)> {
    ENTRIES.into_iter().find(|(outer, _)| *outer == element)
}

/// An element for one key while it is parsed.
struct Entry<'a> {
    outer: &'static str,
    inner: &'static str,
    is_inside: bool,
    name: String,
    events: Vec<Event<'a>>,
}

impl<'a> Entry<'a> {
    /// Adds an event; returns whether it is the last one of the element. `None` if the element cannot be parsed, or
    /// contains another one for a key: without it, the rest would not be well formed.
    fn take(&mut self, event: Event<'a>) -> Option<bool> {
        let mut is_end = false;
        match &event {
            Event::Start(start) if named(start.name().as_ref()).is_some() => return None,
            Event::Start(start) if start.name().as_ref() == self.inner => self.is_inside = true,
            Event::End(end) if end.name().as_ref() == self.inner => self.is_inside = false,
            Event::End(end) => is_end = end.name().as_ref() == self.outer,
            Event::Text(text) if self.is_inside => {
                self.name.push_str(&unescape(text).ok()?);
            }
            Event::CData(text) if self.is_inside => self.name.push_str(text),
            Event::GeneralRef(reference) if self.is_inside => {
                let name: &str = reference;
                self.name.push_str(&unescape(&format!("&{name};")).ok()?);
            }
            _ => {}
        }
        self.events.push(event);
        Some(is_end)
    }

    /// The directory that an object stands for.
    fn directory(&self) -> Option<&str> {
        let is_object = matches!(self.outer, "Contents" | "Blob");
        self.name.strip_suffix('/').filter(|_| is_object)
    }

    /// Whether the library changes the name, which would make it equal to other names.
    fn is_odd(&self) -> bool {
        let name = self.name.strip_suffix('/').unwrap_or(&self.name);
        !Path::parse(name).is_ok_and(|path| path.as_ref() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_invalid_keys_and_those_of_directories_are_removed() {
        let entry = |key: &str| format!("<Contents><Key>{key}</Key><Size>3</Size></Contents>");
        let keys = [
            "a/b",
            "a//b",
            "a/../b",
            "x &amp; y",
            "dir/",
            "/first",
            "&#252;",
        ];
        let listing = format!(
            "<?xml version=\"1.0\"?><ListBucketResult><Prefix>a</Prefix>{}<CommonPrefixes>\
             <Prefix>p//</Prefix></CommonPrefixes><CommonPrefixes><Prefix>q/</Prefix></CommonPrefixes>\
             </ListBucketResult>",
            keys.map(entry).concat()
        );
        let cleaned = without_odd_keys(listing.as_bytes()).unwrap();
        let left = String::from_utf8(cleaned.listing).unwrap();
        assert_eq!(cleaned.odd, 4, "{left}");
        assert_eq!(cleaned.directories, ["dir"]);
        let expected = ["a/b", "x &amp; y", "&#252;"].map(entry).concat();
        assert_eq!(
            left,
            format!(
                "<?xml version=\"1.0\"?><ListBucketResult><Prefix>a</Prefix>{expected}\
                 <CommonPrefixes><Prefix>q/</Prefix></CommonPrefixes></ListBucketResult>"
            )
        );
    }

    #[test]
    fn names_in_cdata_sections_are_names() {
        let entry = |key: &str| format!("<Contents><Key><![CDATA[{key}]]></Key></Contents>");
        let listing = ["a/../b", "a&b", "dir/"].map(entry).concat();
        let cleaned = without_odd_keys(listing.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(cleaned.listing).unwrap(), entry("a&b"));
        assert_eq!((cleaned.odd, cleaned.directories.len()), (1, 1));
    }

    #[test]
    fn invalid_xml_is_not_filtered() {
        assert!(without_odd_keys(b"<a><b></a>").is_none());
        let marked = without_odd_keys("\u{feff}<a></a>".as_bytes()).unwrap();
        assert_eq!(marked.listing, b"<a></a>");
        assert!(without_odd_keys("\u{feff}\u{feff}<a></a>".as_bytes()).is_none());
        let nested = "<Contents><Key>a//b<Contents><Key>n</Key></Contents></Contents>";
        assert!(without_odd_keys(nested.as_bytes()).is_none());
    }
}
